"""The tool definitions as a chat template sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


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
