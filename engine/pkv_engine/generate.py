"""`pkv-engine generate`: prompts from the command line or from a file, replies on stdout."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from pkv_engine.generation import Delta, GenerationRequest, SamplingParams
from pkv_engine.options import EngineOptions, engine_options
from pkv_lint.command_line import write
from pkv_lint.prompt.errors import InputError, RenderError


@click.command("generate", context_settings={"help_option_names": ["-h", "--help"]})
@engine_options
@click.option(
    "--prompt", "prompts", multiple=True, metavar="TEXT", help="What a user says; may be given several times."
)
@click.option("--request", "file", metavar="FILE", help="A chat-completions body instead; `-` reads standard input.")
@click.option("--raw", is_flag=True, help="Go on with the text of --prompt itself, without the chat template.")
@click.option("--max-tokens", type=click.IntRange(1), default=128, show_default=True)
@click.option("--temperature", type=click.FloatRange(0), default=0.0, show_default=True)
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True)
@click.option("--stop", multiple=True, metavar="TEXT", help="Text that ends a reply; may be given several times.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    engine: EngineOptions,
    prompts: tuple[str, ...],
    file: str | None,
    raw: bool,
    max_tokens: int,
    temperature: float,
    top_p: float,
    stop: tuple[str, ...],
    format_: str,
) -> int:
    """Generate replies to prompts, all at once. JSON lines also tell what the cache served."""
    from pkv_engine.loading import load

    if bool(prompts) == (file is not None) or (raw and not prompts):
        raise click.UsageError("give --prompt (with or without --raw), or --request")
    params = SamplingParams(temperature=temperature, top_p=top_p, stop=stop, max_tokens=max_tokens)
    said = ({"messages": [{"role": "user", "content": text}]} for text in prompts)
    bodies = [_read(file)] if file is not None else list(said)
    model = load(engine)
    if raw:
        token_ids = [model.tokenizer.encode(text, add_special_tokens=True) for text in prompts]
    else:
        try:
            token_ids = [model.renderer.render(body).token_ids for body in bodies]
        except RenderError as error:
            raise InputError(error.message, file=file, path=error.path) from None
    replies: dict[str, list[Delta]] = {}
    for number, ids in enumerate(token_ids):
        replies[str(number)] = []
        model.engine.add(GenerationRequest(request_id=str(number), prompt_token_ids=ids, params=params))
    while model.engine.has_work:
        for delta in model.engine.step():
            replies[delta.request_id].append(delta)
            if format_ == "text" and len(replies) == 1:
                write(delta.text)
    for reply, ids in zip(replies.values(), token_ids, strict=True):
        if format_ == "json":
            write([json.dumps(_document(reply, len(ids)), ensure_ascii=False)])
        else:
            write(["" if len(replies) == 1 else "".join(delta.text for delta in reply)])
    return 0


def _document(reply: list[Delta], num_prompt_tokens: int) -> dict[str, Any]:
    return {
        "text": "".join(delta.text for delta in reply),
        "token_ids": [token for delta in reply for token in delta.token_ids],
        "finish_reason": reply[-1].finish_reason,
        "prompt_tokens": num_prompt_tokens,
        "cached_tokens": reply[-1].num_cached_tokens,
    }


def _read(file: str) -> dict[str, Any]:
    try:
        body = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}", file=file) from None
    if not isinstance(body, dict):
        raise InputError("not a chat-completions body (a JSON object)", file=file)
    return body
