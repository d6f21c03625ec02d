"""`pkv-render`: what the server will see, and where each part of it came from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice

import click

from pkv_lint.command_line import USAGE, complain, run, write
from pkv_lint.options import ServerOptions, server_options
from pkv_lint.prompt.errors import InputError, RenderError
from pkv_lint.prompt.prompt import Prompt
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.streams import name_of
from pkv_lint.prompt.traffic import TrafficLine, read_requests

PROGRAM = "pkv-render"
EPILOG = "Exit status: 0 all rendered, 2 bad usage, or a request that cannot be rendered."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run(command, PROGRAM, argv)


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", metavar="FILE")
@click.option(
    "--show",
    type=click.Choice(["text", "ids", "blocks", "origins"]),
    default="text",
    show_default=True,
    help="The prompt itself, its token ids, its cache blocks, or its parts and where they came from.",
)
@click.option("--request", "number", type=click.IntRange(0), metavar="N", help="Only request N of a traffic, from 0.")
@server_options
@click.version_option(package_name="pkv-lint", prog_name=PROGRAM)
def command(file: str, show: str, number: int | None, server: ServerOptions) -> int:
    """Render a request exactly as the server will, before it is sent. `-` reads standard input.

    One request (or the one that --request picks) is shown for reading. A traffic of several gives one line of JSON per
    request, `{"error": ...}` for those that the server would refuse.
    """
    shown = Shown(show, server.renderer_of_lines(PROGRAM), server.block_tokens)
    requests = read_requests(file, zone=server.zone)
    if number is not None:
        picked = next(islice(requests, number, None), None)
        if picked is None:
            raise InputError(f"holds no request {number} (the first is 0)", file=file)
        return show_one(picked, shown)
    first = list(islice(requests, 2))
    if len(first) == 1:
        return show_one(first[0], shown)
    return show_all(chain(first, requests), shown, name_of(file))


@dataclass(frozen=True, slots=True)
class Shown:
    """What of a request is shown (`what`: text, ids, blocks or origins), what renders it, and the tokens of a block."""

    what: str
    renderer_of: Callable[[TrafficLine | None], Renderer]
    block_tokens: Callable[[Renderer], int]


def show_one(item: TrafficLine | InputError, shown: Shown) -> int:
    """Show one request for reading."""
    from pkv_lint.outputs import prompt as output

    if isinstance(item, InputError):
        raise item
    renderer = shown.renderer_of(item)
    size = shown.block_tokens(renderer)
    try:
        prompt = prompt_of(item, renderer)
        if shown.what == "text":
            output.text_of(prompt)
            show_text(prompt)
        elif shown.what == "ids":
            write([json.dumps(prompt.token_ids.tolist())])
        elif shown.what == "blocks":
            write(list(output.block_lines(prompt, size, item.request)))
        else:
            write(list(output.section_lines(prompt, item.request)))
    except RenderError as error:
        raise located(item, error) from None
    note = output.headline(prompt, size)
    if renderer.layout == "builtin":
        note += " (no model was named: built-in layout and vocabulary)"
    click.echo(f"{PROGRAM}: {note}", err=True)
    return 0


def show_text(prompt: Prompt) -> None:
    """For reading on a terminal, coloured by origin; elsewhere exactly the characters of the prompt."""
    from pkv_lint.outputs import prompt as output

    context = click.get_current_context()
    if sys.stdout.isatty():
        write([output.coloured(prompt)])
        if context.color is not False:
            click.echo(output.legend(), err=True)
    else:
        context.color = True  # keep what looks like a colour code in the prompt
        write(output.text_of(prompt))


def show_all(items: Iterable[TrafficLine | InputError], shown: Shown, name: str) -> int:
    """One line of JSON per request of the file called `name`."""
    from pkv_lint.outputs import prompt as output

    failed = count = 0

    def lines() -> Iterator[str]:
        nonlocal failed, count
        for item in items:
            count += 1
            value, refused = None, item
            if isinstance(item, TrafficLine):
                renderer = shown.renderer_of(item)
                try:
                    value = output.as_json(prompt_of(item, renderer), shown.what, shown.block_tokens(renderer))
                except RenderError as error:
                    refused = located(item, error)
            if isinstance(refused, InputError):
                failed += 1
                value = {"error": str(refused)}
            yield json.dumps(value, ensure_ascii=False)

    write(lines())
    if failed:
        complain(PROGRAM, f"{name}: {failed:,} of {count:,} requests cannot be rendered")
    return USAGE if failed else 0


def prompt_of(line: TrafficLine, renderer: Renderer) -> Prompt:
    """Raises RenderError where the server would refuse the request."""
    if line.request is None:
        assert line.token_ids is not None
        return Prompt(None, line.token_ids)
    return renderer.render(line.request, line.moment.now or datetime.now(), api=line.api)


def located(line: TrafficLine, error: RenderError) -> InputError:
    """The refusal with its place in the file."""
    from pkv_lint.places import position_of

    place = position_of(line, error.path)
    message = error.message
    if error.from_template and not message.startswith("the chat template"):
        message = f"the chat template fails: {message}"  # Jinja's words alone read as if the request were meant
    return InputError(message, file=line.file, line=place.line, column=place.column, path=error.path)


if __name__ == "__main__":
    sys.exit(main())
