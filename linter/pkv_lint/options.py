"""The options that say which deployment reads the requests: the same for every command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from pkv_lint.command_line import complain

if TYPE_CHECKING:
    from pkv_lint.prompt.renderer import Renderer


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What the user said about the server. `timezone` is a name such as `UTC`, `block_size` in tokens."""

    model: str | None
    chat_template: str | None
    tokenizer: str | None
    vllm_args: str | None
    block_size: int | None
    timezone: str
    offline: bool

    @property
    def zone(self) -> tzinfo:
        """Raises InputError for a name that is no time zone."""
        from pkv_lint.prompt.clock import read_timezone

        return read_timezone(self.timezone)

    def renderer(self, program: str) -> Renderer:
        """Raises InputError for what cannot be loaded; names flags without influence on stderr, once."""
        from pkv_lint.prompt.renderer import Renderer

        renderer = Renderer.load(self.model, self.chat_template, self.tokenizer, self.vllm_args, offline=self.offline)
        if renderer.deployment.ignored:
            complain(program, f"no influence here: {' '.join(renderer.deployment.ignored)}")
        return renderer

    def block_tokens(self, renderer: Renderer) -> int:
        """Tokens per block: what was asked for, else what the deployment uses."""
        from pkv_lint.prompt.model_config import DEFAULT_BLOCK_SIZE

        return self.block_size or renderer.deployment.block_size or DEFAULT_BLOCK_SIZE


def stated(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A value that is not empty: where a shell variable was unset, the built-in layout must not step in unseen."""
    if value == "":
        raise click.BadParameter("is empty", ctx=context, param=option)
    return value


OPTIONS = (
    click.option(
        "--model", metavar="ID|DIR", callback=stated, help="Model directory or hub id, for its template and tokenizer."
    ),
    click.option("--chat-template", metavar="FILE", callback=stated, help="Chat template to render with."),
    click.option(
        "--tokenizer", metavar="FILE|DIR", callback=stated, help="tokenizer.json, or the directory that holds it."
    ),
    click.option("--vllm-args", metavar="'…'", help="The `vllm serve …` line of the deployment."),
    click.option("--block-size", type=click.IntRange(1, 1_000_000), help="Tokens per KV-cache block (default 16)."),
    click.option("--timezone", metavar="ZONE", default="UTC", show_default=True, help="Zone of Unix timestamps."),
    click.option("--offline", is_flag=True, help="Never ask the hub."),
)


def server_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which is given them as `server`."""

    @wraps(function)
    def with_server(**arguments: Any) -> Any:
        server = ServerOptions(**{name: arguments.pop(name) for name in ServerOptions.__dataclass_fields__})
        return function(server=server, **arguments)

    for option in reversed(OPTIONS):
        with_server = option(with_server)
    return with_server
