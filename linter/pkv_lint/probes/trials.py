"""Rendering requests once more, a little changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import Any

from pkv_lint.changes import role
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.prompt import Prompt
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.turns import Turn

Chat = Mapping[str, Any]
MOST_SHAPES = 32
"""Shapes of requests that are tried; the fields of a traffic's requests hardly differ more."""


class Trials:
    """The requests of a traffic whose template may be judged, and trial renders of them."""

    def __init__(self, renderer: Renderer, turns: Sequence[Turn]) -> None:
        self.renderer = renderer
        self.turns = turns
        self._own: dict[int, Prompt | None] = {}
        self._variables: dict[str, frozenset[str]] = {}

    @property
    def named(self) -> bool:
        """Whether the model was named: of the built-in layout nothing is said."""
        return self.renderer.layout != "builtin"

    @cached_property
    def templated(self) -> list[Turn]:
        """Requests whose prompt a chat template made."""
        if not self.named or self.renderer.mode != "hf":
            return []
        return [turn for turn in self.turns if turn.prompt.text is not None and turn.chat["messages"]]

    @cached_property
    def shapes(self) -> list[Turn]:
        """The first request of every shape."""
        return list(self.shapes_of(self.templated))

    def shapes_of(self, turns: Iterable[Turn]) -> Iterator[Turn]:
        """The first of every shape among these requests, if a template made its prompt."""
        chosen = {turn.index for turn in self.templated}
        seen: set[str] = set()
        for turn in turns:
            if turn.index in chosen and len(seen) < MOST_SHAPES and (own := shape(turn.chat)) not in seen:
                seen.add(own)
                yield turn

    @cached_property
    def bos(self) -> int | None:
        """The token that the tokenizer puts in front of a text by itself, else the one its configuration calls BOS."""
        if not self.named or self.renderer.mode != "hf":
            return None
        tokenizer = self.renderer.tokenizer
        added = tokenizer.encode("", True)
        if len(added):
            return added[0]
        name = self.renderer.special_tokens.get("bos_token")
        return tokenizer.token_id(name) if name else None

    def own(self, turn: Turn) -> Prompt | None:
        """The prompt of a request in its chat form, whose origins are paths of that form."""
        if turn.chat is turn.line.request:
            return turn.prompt
        if turn.index not in self._own:
            self._own[turn.index] = self.render(turn.chat, turn.now)
        return self._own[turn.index]

    def render(self, chat: Chat, now: datetime) -> Prompt | None:
        """The prompt of a chat body; None where it is refused."""
        try:
            return self.renderer.render(chat, now, api="chat")
        except RenderError:
            return None

    def text(self, chat: Chat, now: datetime) -> str | None:
        prompt = self.render(chat, now)
        return prompt.text if prompt is not None else None

    def variables(self, turn: Turn) -> frozenset[str]:
        """Names that the template of a request takes from outside; none where it cannot be told."""
        source = self.source(turn)
        if source not in self._variables:
            try:
                self._variables[source] = self.renderer.template_variables(turn.chat)
            except RenderError:
                self._variables[source] = frozenset()
        return self._variables[source]

    def source(self, turn: Turn) -> str:
        """The text of a request's template."""
        chat = turn.chat
        kwargs = chat.get("chat_template_kwargs")
        asked = chat.get("chat_template") or (kwargs.get("chat_template") if isinstance(kwargs, dict) else None)
        try:
            return self.renderer.templates.choose(asked, tools=bool(chat.get("tools")))
        except RenderError:
            return ""


def shape(chat: Chat) -> str:
    """What a template's branches go by: the fields that a request has, who speaks after whom, and who speaks last."""
    messages = chat["messages"]
    kinds = [kind(message) for message in messages]
    pairs = sorted({*pairwise(kinds)})
    fields = sorted(name for name in ("tools", "documents", "chat_template") if chat.get(name))
    return json.dumps([kinds[:1], pairs, kinds[-1:], fields, chat.get("chat_template_kwargs")], default=str)


def kind(message: Any) -> str:
    """The role of a message, and what is in it."""
    if not isinstance(message, dict):
        return ""
    content = message.get("content")
    parts = "parts" if isinstance(content, list) else "text" if content else ""
    return f"{role(message)} {parts} {' '.join(sorted(message.keys() - {'role', 'content', 'name'}))}"


def with_argument(chat: Chat, name: str, value: object) -> Chat:
    """The request with one more argument for its template."""
    kwargs = chat.get("chat_template_kwargs")
    return {**chat, "chat_template_kwargs": {**(kwargs if isinstance(kwargs, dict) else {}), name: value}}
