"""Ids of plain ASCII text, word by word.

A byte-level vocabulary takes a text apart with regular expressions and encodes each word by itself. Texts are made of
few different words, so looking them up beats encoding them several times over, even in a text that was never seen. For
this the expressions are translated to Python's `re`. That knows no `\\p{...}` and has other classes than Oniguruma, but
over ASCII characters they are small tables; so only ASCII text goes this way, and only by expressions whose every
element is known.
"""

from __future__ import annotations

import json
import re
import unicodedata
from array import array
from collections.abc import Iterable
from itertools import chain
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers

from pkv_lint.prompt.segments import Segmenter

_MEMO_WORDS = 1 << 18
_LONGEST_WORD = 64
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""What `ByteLevel` with `use_regex` splits by."""

_Split = tuple[re.Pattern[str], bool]
"""An expression with one group around it, and whether what it does not match would be dropped."""


class Words:
    """Encodes ASCII text that holds no added token but one in front."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, segmenter: Segmenter, splits: list[_Split]) -> None:
        self._segmenter = segmenter
        self._splits = splits
        self._added = {token.content: id for id, token in tokenizer.get_added_tokens_decoder().items()}
        self._memo = _WordMemo(tokenizer.model)

    @classmethod
    def of(cls, tokenizer: tokenizers.Tokenizer, segmenter: Segmenter) -> Words | None:
        """For a tokenizer that is understood, else None."""
        if tokenizer.normalizer is not None and _states(tokenizer.normalizer) not in ([], [{"type": "NFC"}]):
            return None
        splits = _splits(_states(tokenizer.pre_tokenizer)) if tokenizer.pre_tokenizer else None
        return cls(tokenizer, segmenter, splits) if splits else None

    def ids(self, segment: str) -> array[int] | None:
        """The ids of a segment, or None for one that has to be encoded by the tokenizer itself."""
        if not segment.isascii():
            return None
        parted = self._segmenter.parted(segment)
        if parted is None:
            return None
        token, text = parted
        words = [text] if text else []
        for pattern, whole in self._splits:
            parts = [pattern.split(word) for word in words]
            if whole and any(any(part[::2]) for part in parts):
                return None
            words = list(filter(None, chain.from_iterable(parts)))
        ids = array("i", chain.from_iterable(map(self._memo.__getitem__, words)))
        if token:
            ids.insert(0, self._added[token])
        return ids


class _WordMemo(dict[str, tuple[int, ...]]):
    """The ids of a word: what the model makes of it, kept."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._alphabet = {code: byte_level.pre_tokenize_str(chr(code))[0][0] for code in range(128)}

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = tuple(token.id for token in self._model.tokenize(word.translate(self._alphabet)))
        if len(word) <= _LONGEST_WORD:
            if len(self) >= _MEMO_WORDS:
                self.clear()
            self[word] = ids
        return ids


def _splits(states: list[dict[str, Any]]) -> list[_Split] | None:
    """The expressions that pre-tokenizers split by, one after another, ending with the byte level."""
    if not states or states[-1]["type"] != "ByteLevel" or states[-1].get("add_prefix_space"):
        return None
    splits: list[_Split] = []
    for state in states[:-1]:
        if state["type"] == "Digits":
            source: str | None = r"\p{N}" if state["individual_digits"] else r"\p{N}+"
            whole = False
        elif state["type"] == "Split":
            source = state["pattern"].get("Regex")
            whole = (state["behavior"], state["invert"]) == ("Removed", True)
            if not whole and (state["behavior"], state["invert"]) != ("Isolated", False):
                return None
        else:
            return None
        pattern = None if source is None else ascii_pattern(source)
        if pattern is None:
            return None
        splits.append((pattern, whole))
    if states[-1].get("use_regex", True) and (pattern := ascii_pattern(_GPT2)):
        splits.append((pattern, False))
    return splits


def ascii_pattern(source: str) -> re.Pattern[str] | None:
    """An expression for Python's `re`, in one group, that finds in ASCII text what Oniguruma (as `tokenizers` uses it)
    finds by `source`; None where this is not certain."""
    parts = []
    place = 0
    while place < len(source):
        element = _ELEMENT.match(source, place)
        if element is None:
            return None
        place = element.end()
        if element["class"] is not None:
            translated = _translated_class(element["class"])
            if translated is None:
                return None
            parts.append(translated)
        elif element["category"] is not None:
            characters = _of_category(element["category"])
            if characters is None:
                return None
            parts.append(_class(characters))
        elif element["group"] is not None:
            parts.append("(?:" if element["group"] == "(" else element["group"])
        else:
            parts.append(element[0])
    try:
        # With ASCII, `\s`, `\d`, `\w` and `\b` are in Python what they are in Oniguruma for ASCII text.
        pattern = re.compile(f"({''.join(parts)})", re.ASCII)
    except re.error:
        return None
    return pattern if pattern.groups == 1 and pattern.fullmatch("") is None else None


# What may stand in an expression. Left out on purpose: `.`, `^` and `$` (Ruby's rules for lines), `{,n}` and `{n}+`
# (which mean other things there), named groups, back references, flags for the rest of the expression.
_ELEMENT = re.compile(
    r"""
      \[ (?P<class> \^? (?: \\p\{\w+\} | \\[sdwrntfv] | \\[^\w\s] | [^\]\[\\] )+ ) \]
    | \\p\{ (?P<category> \w+ ) \}
    | (?P<group> \( \?(?: : | i: | ! | = | > | <! | <= ) | \( (?!\?) )
    | \) | \|
    | [*+?] [+?]? (?![*+?])
    | \{ \d+ (?: , \d* )? \} (?![*+?])
    | \\ [sSdDwWbrntfv]
    | \\ [^\w\s]
    | [^\\\[\](){}|*+?.^$]
    """,
    re.VERBOSE,
)
_CLASS_ITEM = re.compile(
    r"""
      \\p\{ (?P<category> \w+ ) \}
    | (?P<escape> \\[sdwrntfv] )
    | (?P<first> \\\W | [^\\] ) (?: - (?P<last> \\\W | [^\\] ) )?
    """,
    re.VERBOSE | re.DOTALL,
)


def _translated_class(source: str) -> str | None:
    """A bracket expression without its brackets, as one of Python."""
    negated = source.startswith("^")
    items = source[negated:]
    if "&&" in items or re.search(r"\}-|\\[sdw]-|-\\[psdw]", items):  # intersections, ranges without an end
        return None
    characters: set[str] = set()
    for item in _CLASS_ITEM.finditer(items):
        if item["category"] is not None:
            of_category = _of_category(item["category"])
            if of_category is None:
                return None
            characters |= of_category
        elif item["escape"] is not None:
            characters |= set(re.findall(item["escape"], _ASCII, re.ASCII))
        else:
            first, last = item["first"][-1], (item["last"] or item["first"])[-1]
            characters.update(character for character in _ASCII if first <= character <= last)
    return _class(frozenset(_ASCII) - characters if negated else characters)


_ASCII = "".join(map(chr, range(128)))
_CATEGORY = re.compile("L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfos]?")
_SCRIPTS = frozenset({"Han", "Hangul", "Hiragana", "Katakana"})


def _of_category(name: str) -> frozenset[str] | None:
    """The ASCII characters of a general category or of a script (none); None for a property that is not known here."""
    if name not in _SCRIPTS and not _CATEGORY.fullmatch(name):
        return None
    return frozenset(character for character in _ASCII if unicodedata.category(character).startswith(name))


def _class(characters: Iterable[str]) -> str:
    members = "".join(map(re.escape, sorted(characters)))
    return f"[{members}]" if members else "(?!)"


def _states(component: Any) -> list[dict[str, Any]]:
    """The parts a normaliser or pre-tokenizer is made of, in order, sequences resolved."""
    pending = [json.loads(component.__getstate__())]
    states = []
    while pending:
        state = pending.pop(0)
        if state["type"] == "Sequence":
            pending = [*(state.get("normalizers") or state.get("pretokenizers") or []), *pending]
        else:
            states.append(state)
    return states
