"""Where the server's prompt is not the one that was rendered here, and what that may mean."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from pkv_engine.verify.asking import Answer
from pkv_engine.verify.questions import Question
from pkv_engine.verify.reading import fetch
from pkv_lint.prompt.renderer import Renderer

AROUND = 6
"""Tokens that are shown from where two prompts part."""


@dataclass(frozen=True, slots=True)
class PromptDifference:
    """`position` is the index of the first token that differs (None: the server's prompt is not known), `ours` and
    `theirs` are the text from there on, each by its own side's vocabulary (empty: not known)."""

    index: int
    our_tokens: int
    their_tokens: int
    position: int | None = None
    ours: str = ""
    theirs: str = ""

    def __str__(self) -> str:
        counts = f"{self.our_tokens:,} tokens here, {self.their_tokens:,} on the server"
        if self.position is None:
            return f"{counts}; the server does not tell its prompt"
        place = f"{counts}; they part at token {self.position:,}"
        if self.ours and (self.ours.startswith(self.theirs) or self.theirs.startswith(self.ours)) and self.theirs:
            return f"{place}, and the text goes on alike: {self.ours!r}, so the tokenizer is another"
        return f"{place}: {self.ours!r} here, {self.theirs!r} there"


def differs(question: Question, answer: Answer) -> bool:
    """Whether the server computed another prompt than the one rendered here, by its ids or else by their number."""
    assert question.request.ids is not None
    if answer.prompt_token_ids is not None:
        return answer.prompt_token_ids != question.request.ids
    return answer.usage is not None and answer.usage.prompt_tokens != question.request.num_prompt_tokens


async def explain(
    client: httpx.AsyncClient, question: Question, answer: Answer, renderer: Renderer
) -> PromptDifference:
    """Find where the two prompts part. `/tokenize` tells one that the server did not return, where it has that."""
    ours = question.request.ids
    assert ours is not None and answer.usage is not None
    theirs = answer.prompt_token_ids
    if theirs is None:
        theirs = await _tokenized(client, question)
    told = answer.usage.prompt_tokens or 0
    if theirs is None or theirs == ours:
        return PromptDifference(question.request.index, len(ours), told)
    position = first_difference(ours, theirs)
    return PromptDifference(
        question.request.index,
        len(ours),
        told,
        position,
        _shown(renderer, ours[position : position + AROUND]),
        await _detokenized(client, theirs[position : position + AROUND], question.body.get("model")),
    )


def _shown(renderer: Renderer, ids: array[int]) -> str:
    # The encoder of Mistral's models has no vocabulary to look into.
    return " ".join(map(str, ids)) if renderer.mode == "mistral" else renderer.tokenizer.decode(ids)


def first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """The first index at which two sequences differ; the length of the shorter one where it begins the other."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


async def _detokenized(client: httpx.AsyncClient, ids: array[int], model: object) -> str:
    """Text by the server's vocabulary; the ids where it does not tell."""
    body = {"tokens": ids.tolist()} | ({"model": model} if model else {})
    text = await _asked(client, "/detokenize", body, "prompt")
    return text if isinstance(text, str) else " ".join(map(str, ids))


async def _tokenized(client: httpx.AsyncClient, question: Question) -> array[int] | None:
    if question.api not in ("chat", "completions"):
        return None
    names = ("model", "messages", "prompt", "tools", "chat_template", "chat_template_kwargs", "add_generation_prompt")
    body = {name: question.body[name] for name in names if name in question.body}
    tokens = await _asked(client, "/tokenize", body, "tokens")
    if not isinstance(tokens, list) or not all(type(token) is int and 0 <= token < 2**31 for token in tokens):
        return None
    return array("i", tokens)


async def _asked(client: httpx.AsyncClient, path: str, body: dict[str, Any], member: str) -> Any:
    """A member of what the server answers; None where there is no such answer."""
    try:
        response = await fetch(client, "POST", path, body)
        return response.json()[member] if response.is_success else None
    except (httpx.RequestError, ValueError, RecursionError, KeyError, TypeError):
        return None
