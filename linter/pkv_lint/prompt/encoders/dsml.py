"""What the prompt formats of DeepSeek V3.2 and V4 share: special tokens and the markup language DSML for tool calls."""

# ruff: noqa: RUF001  (the special tokens are spelled with FULLWIDTH VERTICAL LINE)
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.messages import Message, join
from pkv_lint.prompt.serialise import json_text

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
USER = "<｜User｜>"
ASSISTANT = "<｜Assistant｜>"
THINK = "<think>"
END_OF_THINKING = "</think>"


def refuse_overridden_conversation(options: Mapping[str, Any]) -> None:
    """The arguments of the server's own call cannot be template arguments of a request at the same time."""
    for name in ("conversation", "messages"):
        if name in options:
            raise RenderError(
                "vllm.utils.async_utils.make_async.<locals>._async_wrapper() got multiple values for keyword argument "
                f"'{name}'",
                path=f"chat_template_kwargs.{name}",
            )


def last_user(messages: Sequence[Message]) -> int:
    """The index of the last user or developer message, -1 without one."""
    return max((i for i, message in enumerate(messages) if message["role"] in ("user", "developer")), default=-1)


def without_reasoning(message: Message) -> Message:
    return {name: value for name, value in message.items() if name != "reasoning"}


def schemas(tools: Sequence[Any]) -> str:
    """The functions as JSON, one a line."""
    try:
        functions = [tool["function"] for tool in tools]
    except KeyError as error:
        raise RenderError(str(error), path="tools", status=500) from None
    except TypeError as error:
        raise RenderError(str(error), path="tools") from None
    return join("\n", [json_text(function) for function in functions])


def calls_block(calls: Sequence[Mapping[str, Any]], name: str) -> str:
    """The calls of one assistant message, in a block of this name."""
    invocations = join("\n", [_invocation(call["function"]) for call in calls])
    return join("", [f"<｜DSML｜{name}>\n", invocations, f"\n</｜DSML｜{name}>"])


def _invocation(function: Mapping[str, Any]) -> str:
    parameters = join("\n", list(_parameters(function["arguments"])))
    return join("", ['<｜DSML｜invoke name="', function["name"], '">\n', parameters, "\n</｜DSML｜invoke>"])


def _parameters(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name, value in arguments.items():
        is_string = isinstance(value, str)
        kind, text = ("true", value) if is_string else ("false", json_text(value))
        yield join("", ['<｜DSML｜parameter name="', name, f'" string="{kind}">', text, "</｜DSML｜parameter>"])
