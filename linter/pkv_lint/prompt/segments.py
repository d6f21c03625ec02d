"""Where a text can be cut so that its pieces tokenise by themselves.

`tokenizers` first cuts a text at its added tokens (special tokens and others listed in `added_tokens`), then
normalises, pre-tokenises and models every piece on its own (`AddedVocabulary::extract_and_normalize`). So the ids of a
text are the ids of its segments one after another, when a segment begins at an added token. This module finds those
places and says when a tokenizer leaves no such guarantee.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import tokenizers

# Pre-tokenizers that look at one piece and nothing else. Metaspace with `prepend_scheme: first` also asks whether the
# piece stands at offset 0 of its text; but every segment other than the first begins with an added token, so the text
# behind it does so neither in the segment nor in the whole.
_PIECEWISE_PRE_TOKENIZERS = frozenset(
    {
        "BertPreTokenizer",
        "ByteLevel",
        "CharDelimiterSplit",
        "Digits",
        "Metaspace",
        "Punctuation",
        "Split",
        "UnicodeScripts",
        "Whitespace",
        "WhitespaceSplit",
    }
)


class Segmenter:
    """Cuts texts in front of added tokens."""

    __slots__ = ("_complete", "_first", "_second", "reach")

    def __init__(self, first: _Scan, second: _Scan | None, *, complete: bool, reach: int) -> None:
        self._first = first
        self._second = second
        self._complete = complete
        self.reach = reach
        """Whether a segment starts at a place depends on the text up to so many characters behind it, no further."""

    @classmethod
    def of(cls, tokenizer: tokenizers.Tokenizer) -> Segmenter | None:
        """The segmenter of `tokenizer`, or None when its segments cannot be shown to be independent."""
        if tokenizer.encode_special_tokens or getattr(tokenizer.model, "dropout", None):
            return None
        if not _names(tokenizer.pre_tokenizer) <= _PIECEWISE_PRE_TOKENIZERS:
            return None
        added = tokenizer.get_added_tokens_decoder().values()
        verbatim = [token for token in added if not token.normalized]
        normalized = [token for token in added if token.normalized]
        # Tokens with `normalized` are looked for in the normalised pieces that the scan for the others leaves. Those
        # pieces are known where nothing is normalised and no flag moves their ends; elsewhere they stay uncut.
        known = not _names(tokenizer.normalizer) and not any(
            token.lstrip or token.rstrip or token.single_word for token in verbatim
        )
        try:
            first = _Scan(verbatim)
            second = _Scan(normalized) if normalized and known else None
        except RecursionError:  # thousands of tokens, each the beginning of the next
            return None
        flags = any(token.lstrip or token.rstrip or token.single_word for token in added)
        complete = not flags and (second is not None or not normalized)
        # The length of the longest token that may start there or in front, and the character behind (`single_word`).
        reach = 1 + max((len(token.content) for token in added), default=0)
        return cls(first, second, complete=complete, reach=reach) if first.cuts or second else None

    def segments(self, text: str) -> list[str]:
        """`text` in pieces whose ids, one after another, are the ids of `text`. Empty for an empty text."""
        starts = [0]
        piece = 0
        for match in self._first.pattern.finditer(text):
            start = match.start()
            if self._second:
                starts.extend(self._second.starts(text, piece, start))
                piece = match.end()
            if match.group() in self._first.cuts:
                starts.append(start)
        if self._second:
            starts.extend(self._second.starts(text, piece, len(text)))
        return [text[start:end] for start, end in pairwise((*starts, len(text))) if start < end]

    def parted(self, segment: str) -> tuple[str, str] | None:
        """The added token in front of a segment ("" for none) and the text behind it; None when there may be another
        added token in that text, or when the token takes white space with it."""
        if not self._complete:
            return None
        scans = (self._first, self._second) if self._second else (self._first,)
        token = next((match.group() for scan in scans if (match := scan.pattern.match(segment))), "")
        text = segment[len(token) :]
        return None if any(scan.pattern.search(text) for scan in scans) else (token, text)


class _Scan:
    """One scan for added tokens: the longest one at the leftmost place, as `tokenizers` has it."""

    __slots__ = ("cuts", "pattern")

    def __init__(self, tokens: list[tokenizers.AddedToken]) -> None:
        self.pattern = re.compile(_any_of(token.content for token in tokens) if tokens else "(?!)")
        self.cuts = frozenset(token.content for token in tokens if _is_cut(token))

    def starts(self, text: str, start: int, end: int) -> list[int]:
        return [match.start() for match in self.pattern.finditer(text, start, end) if match.group() in self.cuts]


def _is_cut(token: tokenizers.AddedToken) -> bool:
    """Whether the match of `token` always begins a piece exactly at its first character.

    `lstrip` moves the beginning. A first character that is white space may have been taken by a token with `rstrip` in
    front, and one that is part of a word decides whether a token with `single_word` in front counts.
    """
    first = token.content[:1]
    return not (token.lstrip or token.single_word or first.isspace() or first.isalnum() or first in ("", "_"))


def _any_of(words: Iterable[str]) -> str:
    """A pattern for the longest of `words`, written as a trie: alternatives begin with different characters, so a text
    full of `<` costs one step per `<` whatever the number of words."""
    groups: dict[str, list[str]] = {}
    optional = False
    for word in words:
        if word:
            groups.setdefault(word[0], []).append(word)
        else:
            optional = True
    branches = []
    for group in groups.values():
        shared = _shared_length(min(group), max(group))
        tails = {word[shared:] for word in group}
        branches.append(re.escape(group[0][:shared]) + (_any_of(tails) if tails != {""} else ""))
    if len(branches) == 1 and not optional:
        return branches[0]
    return f"(?:{'|'.join(branches)}){'?' if optional else ''}"


def _shared_length(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _names(component: Any) -> set[str]:
    """The types a normaliser or pre-tokenizer is made of, sequences resolved."""
    if component is None:
        return set()
    pending = [json.loads(component.__getstate__())]
    names = set()
    while pending:
        state = pending.pop()
        if state["type"] == "Sequence":
            pending.extend(state.get("normalizers") or state.get("pretokenizers") or [])
        else:
            names.add(state["type"])
    return names
