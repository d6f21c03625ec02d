"""The tool definitions as a chat template sees them."""

from __future__ import annotations

import json
import marshal
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any


class Tool(dict[str, Any]):
    """One definition, the same object for all requests that send it, so that its JSON text is made once."""

    __slots__ = ("_text",)

    def _json_text(self) -> str:
        """What the filter `tojson` prints without options."""
        try:
            return self._text
        except AttributeError:
            self._text: str = json.dumps(self, ensure_ascii=False)
            return self._text


# Errors of templates name the type of what they trip over, and on the server that is a dict.
Tool.__name__, Tool.__module__ = "dict", "builtins"


def known_tools(tools: Sequence[Mapping[str, Any]]) -> list[Tool]:
    """`normalise_tools`, remembered: most requests of a service send the same tools.

    The serialisation tells apart whatever a template could (order of keys, 1 and 1.0 and true).
    """
    try:
        sent = marshal.dumps(tools, 2)  # type: ignore[arg-type]  # the stub knows no protocols
    except ValueError:  # traced values: they belong to one request
        return [Tool(tool) for tool in normalise_tools(tools)]
    return _normalised(sent)


@lru_cache(maxsize=64)
def _normalised(sent: bytes) -> list[Tool]:
    return [Tool(tool) for tool in normalise_tools(marshal.loads(sent))]


def normalise_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """vLLM's own members in vLLM's order, whatever was sent (`ChatCompletionToolsParam` dumped by `model_dump`).

    Members that are missing become null, `strict` and `defer_loading` appear only when set, everything else is dropped;
    `parameters` stays as sent.
    """
    normalised = []
    for tool in tools:
        given = tool["function"]
        function = {
            "name": given["name"],
            "description": given.get("description"),
            "parameters": given.get("parameters"),
        }
        outer = tool.get("defer_loading")
        inner = given.get("defer_loading")
        if given.get("strict") is not None:
            function["strict"] = given["strict"]
        if inner is not None or outer is not None:
            function["defer_loading"] = outer if inner is None else inner
        shaped = {"type": tool.get("type", "function"), "function": function}
        if outer is not None:
            shaped["defer_loading"] = outer
        normalised.append(shaped)
    return normalised
