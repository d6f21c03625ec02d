"""Text to token ids with a model's own vocabulary, each new piece of text once."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tokenizers
from tokenizers import AddedToken

from pkv_lint.prompt.errors import InputError, RenderError
from pkv_lint.prompt.segments import Segmenter
from pkv_lint.prompt.words import Words

# Characters of text whose ids are kept. Prompts of one service are far smaller; the limit holds for endless traffic.
_MEMO_CHARACTERS = 32 * 2**20


class Tokenizer:
    """A vocabulary in the format of `tokenizers` (tokenizer.json) and the special tokens a chat template may print."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, special_tokens: Mapping[str, str]) -> None:
        # transformers' TokenizersBackend resets both before each call (`set_truncation_and_padding`).
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._frame = _take_frame(tokenizer)
        self._segmenter = Segmenter.of(tokenizer) if self._frame else None
        self._words = Words.of(tokenizer, self._segmenter) if self._segmenter else None
        self._memo = _Memo(_MEMO_CHARACTERS)
        self._head = _NO_HEAD
        self.special_tokens: Mapping[str, str] = MappingProxyType(dict(special_tokens))

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """The tokenizer in a directory, or in a file. A file named tokenizer.json stands for its directory: what lies
        next to it (tokenizer_config.json, special_tokens_map.json) names the special tokens. Raises InputError."""
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            wanted = "a tokenizer.json, or a directory that holds one"
            raise InputError(f"no tokenizer there (wanted: {wanted})", file=str(path))
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # `tokenizers` raises a bare Exception for whatever it cannot read
            raise InputError(f"not a tokenizer.json that can be used: {_one_line(error)}", file=str(file)) from None
        if file.name != "tokenizer.json":
            return cls(tokenizer, {})
        config = _read_config(file.parent)
        if "pad_token" not in config and tokenizer.padding:
            config["pad_token"] = tokenizer.padding["pad_token"]
        special_tokens = _special_tokens(config)
        try:
            tokenizer.encode_special_tokens = bool(config.get("split_special_tokens"))
            tokenizer.add_tokens(_configured_tokens(tokenizer, config, special_tokens))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            file = file.with_name("tokenizer_config.json")
            raise InputError(f"its tokens cannot be added: {_one_line(error)}", file=str(file)) from None
        return cls(tokenizer, {name: _content(token) for name, token in special_tokens.items()})

    def encode(self, text: str, add_special_tokens: bool = False) -> array[int]:
        """The token ids of `text`, equal to what the whole text gives in one go.

        `add_special_tokens` lets the tokenizer's post-processor add its own (most often one that begins a sequence).
        Raises RenderError for text that is not Unicode text (lone surrogates), as the server does.
        """
        if self._frame is None:
            return array("i", self._encoding(text, add_special_tokens).ids)
        ids = self._segmented(text, self._segmenter) if self._segmenter else self._parts([text])[text][:]
        if add_special_tokens:
            before, after = self._frame
            ids = array("i", before) + ids + array("i", after)
        return ids

    def offsets(self, text: str, add_special_tokens: bool = False) -> list[tuple[int, int]]:
        """The characters `[start, end)` of `text` that each token of `encode(text, add_special_tokens)` stands for.

        Tokens that hold a part of one character name the whole character; what the post-processor adds has an
        empty span. Costs a tokenisation of the whole text.
        """
        encoding = self._encoding(text, add_special_tokens and self._frame is None)
        spans = encoding.offsets
        end = len(text)
        for place in reversed(range(len(spans))):
            # What normalisation dropped or joined to the character in front (NFC: a combining mark) is in no span.
            last, spans[place] = spans[place], (spans[place][0], max(spans[place][1], end))
            if place and spans[place - 1] != last:
                end = last[0]
        before, after = self._frame if add_special_tokens and self._frame else ((), ())
        return [(0, 0)] * len(before) + spans + [(len(text), len(text))] * len(after)

    @property
    def added(self) -> tuple[int, int]:
        """How many tokens `add_special_tokens` puts before and behind a text."""
        before, after = self._frame or ((), ())
        return len(before), len(after)

    def token_id(self, token: str) -> int | None:
        """The id of the token of this spelling; None when the vocabulary has none."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """What does the work, for those who decode as tokens come."""
        return self._tokenizer

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens included."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def without_special_tokens(self) -> Tokenizer:
        """The same vocabulary with no special tokens for a template to print: for one that belongs to another model."""
        other = copy(self)
        other.special_tokens = MappingProxyType({})
        return other

    def _segmented(self, text: str, segmenter: Segmenter) -> array[int]:
        head = self._head if text.startswith(self._head.text) else _NO_HEAD
        segments = segmenter.segments(text[head.end :])
        parts = self._parts(segments)
        ids = head.ids[:]
        start, settled = head.end, (0, 0)
        for segment in segments:
            if start + segmenter.reach <= len(text):
                settled = start, len(ids)
            ids.extend(parts[segment])
            start += len(segment)
        start, count = settled
        self._head = _Head(text[: start + segmenter.reach], start, ids[:count])
        return ids

    def _parts(self, segments: list[str]) -> dict[str, array[int]]:
        """The ids of each of these segments."""
        parts: dict[str, array[int]] = {}
        unknown = []
        for segment in dict.fromkeys(segments):
            ids = self._memo.get(segment)
            if ids is None:
                ids = self._words.ids(segment) if self._words else None
                if ids is None:
                    unknown.append(segment)
                    continue
                self._memo.put(segment, ids)
            parts[segment] = ids
        if unknown:
            try:
                # Without the offsets, and on all cores: a half of the time even for one text on one core.
                encodings = self._tokenizer.encode_batch_fast(unknown, add_special_tokens=False)
            except TypeError:
                raise _not_unicode("".join(unknown)) from None
            for segment, encoding in zip(unknown, encodings, strict=True):
                parts[segment] = array("i", encoding.ids)
                self._memo.put(segment, parts[segment])
        return parts

    def _encoding(self, text: str, add_special_tokens: bool) -> tokenizers.Encoding:
        try:
            return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        except TypeError:
            raise _not_unicode(text) from None


@dataclass(frozen=True, slots=True)
class _Head:
    """The ids of the last text up to character `end`, where a segment starts in every text that begins with `text`: one
    turn of a conversation repeats the turns before it, so most of it need not be cut again."""

    text: str
    end: int
    ids: array[int]


_NO_HEAD = _Head("", 0, array("i"))


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


def _take_frame(tokenizer: tokenizers.Tokenizer) -> tuple[list[int], list[int]] | None:
    """The ids that post-processing puts before and behind any text.

    The post-processor is taken out: what it does beyond that is to cut spaces off the offsets. Where a probe does not
    show the frame beyond doubt it stays in, and the answer is None.
    """
    post_processor = tokenizer.post_processor
    framed = tokenizer.encode("0", add_special_tokens=True).ids
    unframed = tokenizer.encode("0", add_special_tokens=False).ids
    tokenizer.post_processor = None
    ids = tokenizer.encode("0").ids
    starts = [start for start in range(len(framed) - len(ids) + 1) if framed[start : start + len(ids)] == ids]
    if not ids or ids != unframed or len(starts) != 1:
        tokenizer.post_processor = post_processor
        return None
    return framed[: starts[0]], framed[starts[0] + len(ids) :]


_NAMED_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def _read_config(directory: Path) -> dict[str, Any]:
    """tokenizer_config.json as `PreTrainedTokenizerBase._from_pretrained` (transformers 5.19) sees it:
    special_tokens_map.json overrides it, but only where it has no `added_tokens_decoder`."""
    config = _read_object(directory / "tokenizer_config.json")
    if "added_tokens_decoder" not in config:
        config |= _read_object(directory / "special_tokens_map.json")
    if not config.get("extra_special_tokens"):
        config["extra_special_tokens"] = config.get("additional_special_tokens") or []
    return config


def _special_tokens(config: dict[str, Any]) -> dict[str, str | dict[str, Any]]:
    """The set entries of transformers' `special_tokens_map`, in its order: the seven standard names, further keys that
    end in `_token`, and the members of `extra_special_tokens` when that is an object (a list gives no names)."""
    extra = config["extra_special_tokens"]
    further = {key: value for key, value in config.items() if key.endswith("_token")}
    named = dict.fromkeys(_NAMED_SPECIAL_TOKENS) | further | (extra if isinstance(extra, dict) else {})
    return {name: token for name, token in named.items() if isinstance(token, str | dict)}


def _configured_tokens(
    tokenizer: tokenizers.Tokenizer, config: dict[str, Any], special_tokens: dict[str, str | dict[str, Any]]
) -> list[AddedToken]:
    """What transformers adds to the vocabulary of tokenizer.json at load (`TokenizersBackend.__init__`): tokens of
    `added_tokens_decoder` with other flags, then special tokens that are none there."""
    known = tokenizer.get_added_tokens_decoder().values()
    decoder = config.get("added_tokens_decoder") or {}
    declared = [AddedToken(**decoder[key]) for key in sorted(decoder, key=int)]
    same = {repr(token) for token in known}
    tokens = [token for token in declared if repr(token) not in same]
    contents = {token.content for token in (*known, *tokens)}
    extra = config["extra_special_tokens"]
    for token in (*special_tokens.values(), *(extra if isinstance(extra, list) else ())):
        if (content := _content(token)) not in contents:
            flags = {} if isinstance(token, str) else {key: token[key] for key in token if key in _FLAGS}
            tokens.append(AddedToken(content, special=True, **flags))
            contents.add(content)
    return tokens


_FLAGS = frozenset({"lstrip", "normalized", "rstrip", "single_word"})


def _content(token: str | dict[str, Any]) -> str:
    """The text of a special token, written as a string or as an object (`AddedToken`)."""
    return token if isinstance(token, str) else str(token["content"])


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


def _not_unicode(text: str) -> RenderError:
    """For what `tokenizers` refuses: a str that UTF-8 cannot encode."""
    surrogate = next((character for character in text if "\ud800" <= character <= "\udfff"), "\ud800")
    return RenderError(f"the prompt holds a lone surrogate (U+{ord(surrogate):04X}), which is not Unicode text")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
