"""`pkv-render`: what the server will see, and where each part of it came from."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, islice

import click

from pkv_lint.command_line import USAGE, complain, run, write
from pkv_lint.options import ServerOptions, server_options
from pkv_lint.prompt.errors import InputError, RenderError
from pkv_lint.prompt.prompt import Prompt
from pkv_lint.prompt.renderer import Renderer
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
    zone, renderer = server.zone, server.renderer(PROGRAM)
    size = server.block_tokens(renderer)
    requests = read_requests(file, zone=zone)
    if number is not None:
        picked = next(islice(requests, number, None), None)
        if picked is None:
            raise InputError(f"holds no request {number} (the first is 0)", file=file)
        return show_one(picked, renderer, show, size)
    first = list(islice(requests, 2))
    if len(first) == 1:
        return show_one(first[0], renderer, show, size)
    return show_all(chain(first, requests), renderer, show, size)


def show_one(item: TrafficLine | InputError, renderer: Renderer, show: str, size: int) -> int:
    """Show one request for reading."""
    from pkv_lint.outputs import prompt as output

    if isinstance(item, InputError):
        raise item
    try:
        prompt = prompt_of(item, renderer)
        if show == "text":
            output.text_of(prompt)
            show_text(prompt)
        elif show == "ids":
            write([json.dumps(prompt.token_ids.tolist())])
        elif show == "blocks":
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


def show_all(items: Iterable[TrafficLine | InputError], renderer: Renderer, show: str, size: int) -> int:
    """One line of JSON per request."""
    from pkv_lint.outputs import prompt as output

    failed = count = 0

    def lines() -> Iterator[str]:
        nonlocal failed, count
        for item in items:
            count += 1
            try:
                if isinstance(item, InputError):
                    raise item
                value = output.as_json(prompt_of(item, renderer), show, size)
            except (InputError, RenderError) as error:
                failed += 1
                value = {"error": str(error)}
            yield json.dumps(value, ensure_ascii=False)

    write(lines())
    if failed:
        complain(PROGRAM, f"{failed:,} of {count:,} requests cannot be rendered")
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
