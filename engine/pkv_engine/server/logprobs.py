"""Log probabilities as the two APIs write them (vLLM: `_create_chat_logprobs`, `_create_completion_logprobs`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from pkv_engine.generation import SampledToken, TokenLogprob
from pkv_lint.prompt.tokenizer import Tokenizer

Spelling = Callable[[int], str]
"""The text of one token."""


def spelling(tokenizer: Tokenizer, *, as_ids: bool) -> Spelling:
    """`as_ids` writes tokens as `token_id:7`, since two of them may have one text."""
    return (lambda token_id: f"token_id:{token_id}") if as_ids else (lambda token_id: tokenizer.decode([token_id]))


def chat_logprobs(tokens: Sequence[SampledToken], top: int, spell: Spelling) -> dict[str, Any]:
    """The chosen token counts among the `top` alternatives and stands first, as in vLLM."""

    def entry(item: TokenLogprob) -> dict[str, Any]:
        token = spell(item.token_id)
        return {"token": token, "logprob": finite(item.logprob), "bytes": list(token.encode(errors="replace"))}

    return {
        "content": [
            {**entry(chosen), "top_logprobs": [entry(item) for item in islice(alternatives, top)]}
            for chosen, alternatives in map(ranked, tokens)
        ]
    }


def completion_logprobs(tokens: Sequence[SampledToken], top: int, spell: Spelling, offset: int) -> dict[str, Any]:
    """`offset` is where the first token begins in the text of all of them. There may be one alternative more than
    `top`: the chosen token, where it is none of the likeliest."""
    report: dict[str, Any] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
    for chosen, alternatives in map(ranked, tokens):
        text = spell(chosen.token_id)
        report["text_offset"].append(offset)
        report["token_logprobs"].append(finite(chosen.logprob))
        report["tokens"].append(text)
        report["top_logprobs"].append(
            {spell(item.token_id): finite(item.logprob) for item in islice(alternatives, top + 1)}
        )
        offset += len(text)
    return report


def ranked(token: SampledToken) -> tuple[TokenLogprob, list[TokenLogprob]]:
    """The chosen token, and all that were reported, each once: the chosen one first, then the likeliest."""
    assert token.logprobs, "log probabilities were asked for"
    return token.logprobs[0], list({item.token_id: item for item in token.logprobs}.values())


def finite(logprob: float) -> float:
    """JSON has no infinity."""
    return logprob if logprob > -9999.0 else -9999.0
