"""The options that say which deployment reads the requests: the same for every command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pkv_lint.command_line import complain
from pkv_lint.configuration import Configuration, find_configuration, read_configuration

if TYPE_CHECKING:
    from pkv_lint.prompt.renderer import Renderer
    from pkv_lint.prompt.traffic import TrafficLine


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What the user said about the server. `timezone` is a name such as `UTC`, `block_size` in tokens, `models` holds
    model directories or hub ids by the names that requests use."""

    model: str | None
    chat_template: str | None
    tokenizer: str | None
    vllm_args: str | None
    block_size: int | None
    timezone: str
    offline: bool
    models: Mapping[str, str] = field(default_factory=dict)

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

    def renderer_of_lines(self, program: str) -> Callable[[TrafficLine | None], Renderer]:
        """What renders a line: the model that `models` has for the name in it, else the one that was named (as for
        None). Raises InputError for what cannot be loaded, of `models` once a line needs it."""
        from pkv_lint.prompt.renderer import Renderer

        named = self.renderer(program)

        @cache
        def loaded(model: str) -> Renderer:
            return Renderer.load(model, offline=self.offline)

        def choose(line: TrafficLine | None) -> Renderer:
            if line is None or not self.models:
                return named
            name = line.model if line.request is None else line.request.get("model")
            model = self.models.get(name) if isinstance(name, str) else None
            return named if model is None else loaded(model)

        return choose

    def block_tokens(self, renderer: Renderer) -> int:
        """Tokens per block: what was asked for, else what the deployment uses."""
        from pkv_lint.prompt.model_config import DEFAULT_BLOCK_SIZE

        return self.block_size or renderer.deployment.block_size or DEFAULT_BLOCK_SIZE


def stated(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A value that is not empty: where a shell variable was unset, the built-in layout must not step in unseen."""
    if value == "":
        raise click.BadParameter("is empty", ctx=context, param=option)
    return value


def configure(context: click.Context, option: click.Parameter, file: str | None) -> None:
    """Take the configuration for the defaults of all options that were not given."""
    if context.resilient_parsing:
        return
    found = find_configuration(Path.cwd()) if file is None else read_configuration(Path(file)) or Configuration()
    context.obj, context.default_map = found, dict(found.options)


def configuration_of(context: click.Context) -> Configuration:
    """The configuration that a command was given."""
    found = context.obj
    assert isinstance(found, Configuration)
    return found


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
    click.option(
        "--config",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=configure,
        help="Configuration file (default: the nearest pkv.toml, or pyproject.toml with [tool.pkv]).",
    ),
)
STATED = ("model", "chat_template", "tokenizer", "vllm_args")
"""Options that say which model the requests are for."""


def server_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which is given them as `server`."""

    @wraps(function)
    def with_server(**arguments: Any) -> Any:
        values = {name: arguments.pop(name) for name in ServerOptions.__dataclass_fields__ if name != "models"}
        return function(server=server_of(values, click.get_current_context()), **arguments)

    for option in reversed(OPTIONS):
        with_server = option(with_server)
    return with_server


def server_of(values: dict[str, Any], context: click.Context) -> ServerOptions:
    """The command line wins: who names a model there does not mean the template and tokenizer of the configuration,
    nor, whichever of them is named, its table of models."""
    source = {name: context.get_parameter_source(name) for name in STATED}
    given = {name for name in STATED if source[name] is ParameterSource.COMMANDLINE}
    if "model" in given:
        values |= {name: None for name in STATED if source[name] is ParameterSource.DEFAULT_MAP}
    return ServerOptions(**values, models={} if given else configuration_of(context).models)
