"""Text to token ids with a model's own vocabulary, each new piece of text once."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tokenizers

from pkv_lint.prompt.errors import InputError, RenderError
from pkv_lint.prompt.segments import Segmenter

# Characters of text whose ids are kept. Prompts of one service are far smaller; the limit holds for endless traffic.
_MEMO_CHARACTERS = 32 * 2**20

_NAMED_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Tokenizer:
    """A vocabulary in the format of `tokenizers` (tokenizer.json) and the special tokens a chat template may print."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, special_tokens: Mapping[str, str]) -> None:
        # transformers' TokenizersBackend resets both before each call (`set_truncation_and_padding`).
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._segmenter = Segmenter.of(tokenizer)
        self._memo = _Memo(_MEMO_CHARACTERS)
        self._frame = _special_frame(tokenizer)
        if self._frame is not None:
            # With the frame known, all that post-processing could still do is to trim spaces off the offsets.
            tokenizer.post_processor = None
        self.special_tokens: Mapping[str, str] = MappingProxyType(dict(special_tokens))

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """The tokenizer in a directory, or in a file. A file named tokenizer.json stands for its directory: what lies
        next to it (tokenizer_config.json, special_tokens_map.json) names the special tokens. Raises InputError."""
        directory = path if path.is_dir() else path.parent
        file = directory / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise InputError(
                "no such tokenizer (wanted: a tokenizer.json, or a directory that holds one)", file=str(path)
            )
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # `tokenizers` raises a bare Exception for whatever it cannot read
            raise InputError(f"not a tokenizer.json that can be used: {_one_line(error)}", file=str(file)) from None
        if file.name != "tokenizer.json":
            return cls(tokenizer, {})
        return cls(tokenizer, _special_tokens(directory))

    def encode(self, text: str, add_special_tokens: bool = False) -> array[int]:
        """The token ids of `text`, equal to what the whole text gives in one go.

        `add_special_tokens` lets the tokenizer's post-processor add its own (a beginning-of-sequence token, most often).
        Raises RenderError for text that is not Unicode text (lone surrogates), as the server does.
        """
        if add_special_tokens and self._frame is None:
            return array("i", self._encoding(text, add_special_tokens=True).ids)
        ids = array("i", self._frame[0]) if add_special_tokens and self._frame else array("i")
        for segment in self._segmenter.segments(text) if self._segmenter else (text,):
            known = self._memo.get(segment)
            if known is None:
                known = array("i", self._encoding(segment).ids)
                self._memo.put(segment, known)
            ids.extend(known)
        if add_special_tokens and self._frame:
            ids.extend(self._frame[1])
        return ids

    def offsets(self, text: str, add_special_tokens: bool = False) -> list[tuple[int, int]]:
        """The characters `[start, end)` of `text` that each token of `encode(text, add_special_tokens)` stands for.

        Tokens that hold a part of one character name the whole character; added tokens of the post-processor are empty
        spans. Costs a tokenisation of the whole text.
        """
        if self._frame is None:
            return list(self._encoding(text, add_special_tokens=add_special_tokens).offsets)
        spans = list(self._encoding(text).offsets)
        if not add_special_tokens:
            return spans
        before, after = self._frame
        return [(0, 0)] * len(before) + spans + [(len(text), len(text))] * len(after)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens included."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def _encoding(self, text: str, add_special_tokens: bool = False) -> tokenizers.Encoding:
        try:
            return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        except (TypeError, UnicodeEncodeError):
            place = next((i for i, c in enumerate(text) if "\ud800" <= c <= "\udfff"), None)
            if place is None:
                raise
            message = f"the text holds a lone surrogate (U+{ord(text[place]):04X}), which no tokenizer accepts"
            raise RenderError(message) from None


class _Memo:
    """Ids by text, bounded by the characters kept. Half of the room is for what was used since the other half filled;
    when it is full, what was not used since is dropped."""

    __slots__ = ("_characters", "_new", "_old", "_room")

    def __init__(self, characters: int) -> None:
        self._room = characters // 2
        self._characters = 0
        self._new: dict[str, array[int]] = {}
        self._old: dict[str, array[int]] = {}

    def get(self, text: str) -> array[int] | None:
        ids = self._new.get(text)
        if ids is None and (ids := self._old.get(text)) is not None:
            self.put(text, ids)
        return ids

    def put(self, text: str, ids: array[int]) -> None:
        if self._characters + len(text) > self._room:
            self._old, self._new, self._characters = self._new, {}, 0
        if len(text) <= self._room:
            self._new[text] = ids
            self._characters += len(text)


def _special_frame(tokenizer: tokenizers.Tokenizer) -> tuple[list[int], list[int]] | None:
    """The ids that post-processing puts before and behind any text, or None when a probe does not show them."""
    bare = tokenizer.encode("0", add_special_tokens=False).ids
    full = tokenizer.encode("0", add_special_tokens=True).ids
    places = [i for i in range(len(full) - len(bare) + 1) if full[i : i + len(bare)] == bare]
    if len(places) != 1 or not bare:
        return None
    return full[: places[0]], full[places[0] + len(bare) :]


def _special_tokens(directory: Path) -> dict[str, str]:
    """What transformers' `special_tokens_map` shows to a template: the set ones, as strings.

    As `PreTrainedTokenizerBase._from_pretrained` (5.19) reads them: the seven standard names and every other key that ends
    in `_token`; the named members of `extra_special_tokens` (or of the older `additional_special_tokens`) when that is an
    object, none of a plain list. special_tokens_map.json overrides, but only beside a config without
    `added_tokens_decoder`.
    """
    config = _read_object(directory / "tokenizer_config.json")
    if "added_tokens_decoder" not in config:
        config |= _read_object(directory / "special_tokens_map.json")
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens")
    named = {key: value for key, value in config.items() if key in _NAMED_SPECIAL_TOKENS or key.endswith("_token")}
    if isinstance(extra, dict):
        named |= extra
    return {key: content for key, value in named.items() if (content := _content(value)) is not None}


def _content(token: object) -> str | None:
    """The text of a special token, written as a string or as an object (`AddedToken`)."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _read_object(file: Path) -> dict[str, Any]:
    """A JSON object from `file`; empty when there is no such file."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"not JSON that can be read: {_one_line(error)}", file=str(file)) from None
    if not isinstance(value, dict):
        raise InputError("not a JSON object", file=str(file))
    return value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
