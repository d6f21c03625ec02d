"""What a request sends and its template leaves out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pkv_lint.changes import role
from pkv_lint.probes.trials import Chat, Trials, shape
from pkv_lint.turns import Turn

WORDS = re.compile(r"[^\W_][\w ,-]{14,62}[^\W_]"), re.compile(r"\w{12,}")
"""Text that templates print as it is and do not hold themselves: some words, or a long one."""
LEAST_LOST = 16
"""Characters of unknown origin below which they are numbers and punctuation."""
BILLING_HEADER = "x-anthropic-billing-header"
"""Lines that vLLM itself takes out of system messages."""
ABOUT_TOOLS = ("tools", "tool calls", "tool messages")
THOUGHTS = re.compile(r"<think>.*?(?:</think>|$)|^.*</think>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Given:
    """Something that a request hands to the template: `kind` names it, `path` is its place, `text` a part of it."""

    kind: str
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Unprinted:
    """What is not in the prompt of `turn`. `path` is the place of the first of it in the body's chat form, `kinds` name
    it (`tools`, `system messages`), `requests` counts those like it; `elsewhere` says that other prompts of the traffic
    show something of the first kind."""

    turn: Turn
    path: str
    kinds: tuple[str, ...]
    requests: int
    elsewhere: bool


def find_unprinted(trials: Trials) -> list[Unprinted]:
    """Each kind once, at the first request that misses some of it; all about tools together."""
    missing: dict[str, list[tuple[Turn, str]]] = {}
    printed: set[str] = set()
    for turn in trials.shapes:
        given = list(inputs(trials, turn))
        shown = shown_inputs(trials, turn, given)
        if shown is None:
            continue
        for kind in dict.fromkeys(item.kind for item in given):
            members = [item for item in given if item.kind == kind]
            left_out = [item for item in members if item not in shown]
            if len(left_out) < len(members):
                printed.add(kind)
            if left_out:
                whole = kind in ("tools", "documents") and len(left_out) == len(members)
                missing.setdefault(kind, []).append((turn, whole_path(left_out[0].path) if whole else left_out[0].path))
    faults: list[list[str]] = [[kind for kind in ABOUT_TOOLS if kind in missing]]
    faults += [[kind] for kind in missing if kind not in ABOUT_TOOLS]
    found = []
    for kinds in filter(None, faults):
        shapes = {shape(turn.chat) for kind in kinds for turn, _ in missing[kind]}
        requests = sum(shape(turn.chat) in shapes for turn in trials.templated)
        found.append(Unprinted(*missing[kinds[0]][0], tuple(kinds), requests, kinds[0] in printed))
    return found


def whole_path(path: str) -> str:
    return path.rpartition("[")[0]


def shown_inputs(trials: Trials, turn: Turn, given: Sequence[Given]) -> set[Given] | None:
    """Those of which the prompt shows something; None where that cannot be told."""
    text = turn.prompt.text or ""
    everything = json.dumps(turn.chat, ensure_ascii=False)
    shown = {item for item in given if stands(item.text, text, everything)}
    if len(shown) < len(given):
        # Only now is the prompt worth following character by character.
        prompt = trials.own(turn)
        if prompt is None:
            return None
        lost = sum(origin.end - origin.start for origin in prompt.origins if origin.kind == "computed")
        paths = {origin.path for origin in prompt.origins if origin.path is not None}
        # Text whose way could not be followed may show anything of that length.
        shown |= {
            item
            for item in given
            if any(below(path, item.path) for path in paths) or lost >= max(LEAST_LOST, len(item.text) // 2)
        }
    return shown


def stands(text: str, where: str, everything: str) -> bool:
    """Whether some words of a text stand in a prompt word for word, as often as they stand in the whole request."""
    words = next((match[0] for pattern in WORDS if (match := pattern.search(text))), None)
    return words is not None and where.count(words) >= everything.count(words)


def below(path: str, root: str) -> bool:
    return path == root or path.startswith((f"{root}.", f"{root}["))


def inputs(trials: Trials, turn: Turn) -> Iterator[Given]:
    """What the template is given to print. Not what the server keeps from it."""
    chat = turn.chat
    kwargs = chat.get("chat_template_kwargs")
    kwargs = kwargs if isinstance(kwargs, dict) else {}
    excluded = chat.get("tool_choice") == "none" and trials.renderer.deployment.exclude_tools_when_tool_choice_none
    if not excluded and kwargs.get("tools") is None:
        yield from tools(chat)
    for field, value in (
        ("documents", chat.get("documents")),
        ("chat_template_kwargs.documents", kwargs.get("documents")),
    ):
        for index, document in enumerate(value if isinstance(value, list) else ()):
            if isinstance(document, dict) and (texts := [text for text in document.values() if isinstance(text, str)]):
                yield Given("documents", f"{field}[{index}]", max(texts, key=len))
    for index, message in enumerate(chat["messages"]):
        if isinstance(message, dict):
            yield from message_inputs(message, f"messages[{index}]")


def tools(chat: Chat) -> Iterator[Given]:
    given = chat.get("tools")
    for index, tool in enumerate(given if isinstance(given, list) else ()):
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict) and not (tool.get("defer_loading") or function.get("defer_loading")):
            yield Given("tools", f"tools[{index}]", str(function.get("description") or function.get("name")))


def documents(given: Any, path: str) -> Iterator[Given]:
    for index, document in enumerate(given if isinstance(given, list) else ()):
        texts = [text for text in document.values() if isinstance(text, str)] if isinstance(document, dict) else []
        if texts:
            yield Given("documents", f"{path}[{index}]", max(texts, key=len))


def message_inputs(message: dict[str, Any], path: str) -> Iterator[Given]:
    speaker = role(message)
    calls = message.get("tool_calls")
    if speaker == "assistant" and isinstance(calls, list) and calls:
        # Many templates print the calls alone and leave out what was said with them.
        function = calls[0].get("function") if isinstance(calls[0], dict) else None
        arguments = function.get("arguments") if isinstance(function, dict) else None
        yield Given("tool calls", f"{path}.tool_calls", arguments if isinstance(arguments, str) else "")
        return
    content = message.get("content")
    kind = f"{speaker} messages"
    if isinstance(content, str):
        if visible(content, speaker):
            yield Given(kind, f"{path}.content", visible(content, speaker))
    elif isinstance(content, list):
        for index, part in enumerate(content):
            text = part.get("text") if isinstance(part, dict) and part.get("type", "text") == "text" else None
            if isinstance(text, str) and visible(text, speaker):
                yield Given(kind, f"{path}.content[{index}]", visible(text, speaker))


def visible(text: str, speaker: str) -> str:
    """What of a message a template has no good reason to leave out."""
    if speaker == "assistant":
        text = THOUGHTS.sub("", text)
    elif speaker == "system" and text.startswith(BILLING_HEADER):
        text = text.partition("\n")[2]
    return text.strip()
