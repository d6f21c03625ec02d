"""Text from tokens, as they come (vLLM: `v1/engine/detokenizer.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers.decoders import DecodeStream

from pkv_engine.generation import SamplingParams
from pkv_lint.prompt.tokenizer import Tokenizer

PRIMING = 6
"""Tokens of the prompt that are decoded in front: a first token's text may depend on what stands before it."""


class Detokenizer:
    """The text of one request's output. Characters that are still incomplete, and text that may turn out to be the
    start of a stop string, are kept back."""

    def __init__(self, tokenizer: Tokenizer | None, prompt_token_ids: Sequence[int], params: SamplingParams) -> None:
        self._tokenizer = tokenizer.backend if tokenizer is not None else None
        self._stream = DecodeStream(list(prompt_token_ids[-PRIMING:]), params.skip_special_tokens)
        self._params = params
        self._num_tokens = 0
        self._kept = ""

    def append(self, token_id: int) -> tuple[str, str | None]:
        """The text that a token makes certain, and the stop string that ended it (which is the end of that text, or cut
        off, as the request wants)."""
        self._num_tokens += 1
        if self._tokenizer is None:
            return "", None
        text = self._kept + (self._stream.step(self._tokenizer, token_id) or "")
        if self._num_tokens > self._params.min_tokens and (found := self._find_stop(text)) is not None:
            start, stop = found
            self._kept = ""
            return text[: start + len(stop) if self._params.include_stop_str_in_output else start], stop
        certain = len(text) - self._undecided(text)
        self._kept = text[certain:]
        return text[:certain], None

    def finish(self) -> str:
        """The text that was kept back, when nothing follows."""
        text, self._kept = self._kept, ""
        return text

    def _find_stop(self, text: str) -> tuple[int, str] | None:
        """The stop string that begins first, and where."""
        found = [(start, stop) for stop in self._params.stop if (start := text.find(stop)) >= 0]
        return min(found, default=None)

    def _undecided(self, text: str) -> int:
        """How many characters at the end may be the start of a stop string."""
        return max(
            (length for stop in self._params.stop for length in range(1, len(stop)) if text.endswith(stop[:length])),
            default=0,
        )
