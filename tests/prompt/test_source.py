"""JSON text, and the places of values in it."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.source import Position, decode, format_path, locate, parse, parse_path, position

TEXT = """{
  "model": "m",
  "messages": [
    {"role": "system", "content": "a\\n\\"b\\" \\u00e9\\ud83d\\ude00z\U0001f600!"},
    {"role": "user", "content": [{"type": "text", "text": "hi"}]}
  ],
  "tools": [{"function": {"parameters": {"odd name": 1, "a": true, "a": [null]}}}],
  "n": -12.5e3
}
"""


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        ("", 1, 1),
        ("model", 2, 12),
        ("messages", 3, 15),
        ("messages[0].content", 4, 35),
        ("messages[1]", 5, 5),
        ("messages[1].content[0].text", 5, 59),
        ('tools[0].function.parameters["odd name"]', 7, 54),
        ("n", 8, 8),
    ],
)
def test_a_value_is_found(path: str, line: int, column: int) -> None:
    assert locate(TEXT, path) == Position(line, column)


def test_the_last_of_equal_keys_is_meant() -> None:
    place = locate(TEXT, "tools[0].function.parameters.a[0]")
    assert TEXT.splitlines()[place.line - 1][place.column - 1 :].startswith("null")


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        (0, "a\\n"),
        (1, '\\n\\"'),
        (2, '\\"b'),
        (3, 'b\\"'),
        (6, "\\u00e9"),
        (7, "\\ud83d\\ude00"),
        (8, "z"),
        (9, "\U0001f600!"),
        (10, "!"),
        (11, '"}'),
    ],
)
def test_a_character_is_found_behind_escapes(offset: int, found: str) -> None:
    place = locate(TEXT, "messages[0].content", offset)
    assert TEXT.splitlines()[place.line - 1][place.column - 1 :].startswith(found)


def test_an_offset_beyond_the_string_is_refused() -> None:
    with pytest.raises(ValueError, match="beyond"):
        locate('{"a": "bc"}', "a", 3)


def test_two_lone_halves_are_two_characters() -> None:
    text = r'"\ude00\ud83dx"'
    assert [locate(text, "", offset).column for offset in range(4)] == [2, 8, 14, 15]


def test_a_key_is_found() -> None:
    assert locate('{"a": {"b\\nc": 1}}', 'a["b\\nc"]', key=True) == Position(1, 8)
    assert locate('{"a": {"b\\nc": 1}}', 'a["b\\nc"]', 2, key=True) == Position(1, 12)


def test_an_offset_in_something_that_is_no_string_means_its_start() -> None:
    assert locate('{"a": 1000}', "a", 2) == Position(1, 7)


def test_a_path_leads_on_into_json_in_a_string() -> None:
    text = json.dumps({"arguments": json.dumps({"city": 'São "P"', "n": 1})})
    place = locate(text, "arguments.city", 4)
    assert text[place.column - 1 :].startswith('\\\\\\"P')
    assert text[locate(text, "arguments.n").column - 1] == "1"


def test_a_path_into_a_string_that_is_not_json_stays_at_the_string() -> None:
    assert locate('{"arguments": "{oops"}', "arguments.city") == Position(1, 15)


@pytest.mark.parametrize(
    ("path", "column"), [("b", 1), ("a.c", 7), ("a[0]", 7), ("l[7]", 16), ("l.x", 16), ("l[0].x", 17)]
)
def test_a_value_that_is_not_there_is_sought_as_far_as_possible(path: str, column: int) -> None:
    assert locate('{"a": {}, "l": [1, 2]}', path) == Position(1, column)


def test_deep_nesting_is_no_crash() -> None:
    assert locate(' {"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "a[0]") == Position(1, 2)
    assert locate(' {"b": ' + "[" * 100_000 + "]" * 100_000 + ', "a": 1}', "a") == Position(1, 2)


def test_text_that_is_not_json_is_refused() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        locate('{"a" 1', "a.b")


def test_lines_end_at_line_feeds_only() -> None:
    assert position("a\r\nb\u2028c\rd", 7) == Position(2, 5)
    assert locate('{"a":\r\n 1}', "a") == Position(2, 2)


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        ((), ""),
        (("messages", 0, "content"), "messages[0].content"),
        (("tools", 2, "function", "parameters", "odd name"), 'tools[2].function.parameters["odd name"]'),
        ((3, "body"), "[3].body"),
        (("",), '[""]'),
        (("a", "0"), 'a["0"]'),
        (("é", 'q"]\\'), '["é"]["q\\"]\\\\"]'),
        (("\ud800",), '["\\ud800"]'),
    ],
)
def test_paths_are_written_and_read(parts: tuple[str | int, ...], path: str) -> None:
    assert format_path(parts) == path
    assert parse_path(path) == parts


@pytest.mark.parametrize("path", [".a", "a..b", "a.", "a[", "a[x]", "a[0]b", 'a["b', "a]", "a.[0]", "[0].", "[-1]"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a JSON path"):
        parse_path(path)


@given(st.lists(st.one_of(st.text(), st.integers(0, 10**6))))
def test_every_path_comes_back(parts: list[str | int]) -> None:
    assert parse_path(format_path(parts)) == tuple(parts)


KEYS = st.one_of(st.text(max_size=4), st.text(string.ascii_letters, min_size=1, max_size=4))
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=12)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), ANY_TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=20,
)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], Any]]:
    out: list[tuple[tuple[str | int, ...], Any]] = [(path, value)]
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in members:
        out += leaves(item, (*path, name))
    return out


def index(text: str, place: Position) -> int:
    lines = text.split("\n")
    return sum(len(line) + 1 for line in lines[: place.line - 1]) + place.column - 1


@given(JSON, st.one_of(st.none(), st.integers(0, 3), st.just("\t")), st.booleans(), st.sampled_from([",", " ,", ",\n"]))
def test_every_value_key_and_character_is_found(value: Any, indent: Any, ascii_only: bool, comma: str) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, separators=(comma, ":\t"))
    value = parse(text)  # two halves of a pair come back as one character
    for parts, found in leaves(value):
        path = format_path(parts)
        at = index(text, locate(text, path))
        assert json.JSONDecoder().raw_decode(text, at)[0] == found
        if parts and isinstance(parts[-1], str):
            key_at = index(text, locate(text, path, key=True))
            assert json.JSONDecoder().raw_decode(text, key_at)[0] == parts[-1]
        if isinstance(found, str):
            ends = [index(text, locate(text, path, offset)) for offset in range(len(found) + 1)]
            assert text[ends[-1]] == '"'
            for char, start, end in zip(found, ends, ends[1:], strict=False):
                assert json.loads(f'"{text[start:end]}"') == char


@given(JSON)
def test_parsing_is_that_of_json_loads(value: Any) -> None:
    text = json.dumps(value)
    assert repr(parse(text)) == repr(json.loads(text))


def test_python_reads_numbers_and_equal_keys() -> None:
    assert repr(parse('[NaN, -Infinity, 1e400, -0, -0.0, 1e3, {"a": 1, "a": 2}]')) == (
        "[nan, -inf, inf, 0, -0.0, 1000.0, {'a': 2}]"
    )


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ("{", 1, 2),
        ('{"a": 1,}', 1, 9),
        ("{'a': 1}", 1, 2),
        ('{"a":\n  tru}', 2, 3),
        ('{"a": 1} {"b": 2}', 1, 10),
        ('"tab\there"', 1, 5),
        ('["\\x"]', 1, 3),
        ("\ufeff{}", 1, 1),
    ],
)
def test_what_is_not_json_has_one_line_with_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, "f.json")
    error = caught.value
    assert error.code == "PKV901"
    assert error.line == line
    assert error.column is not None and abs(error.column - column) <= 1  # Python 3.13 points at a trailing comma itself
    assert "\n" not in str(error) and str(error).startswith(f"f.json:{line}:")


def test_lines_are_counted_from_the_first_line() -> None:
    with pytest.raises(InputError) as caught:
        parse("{\n!}", "f.jsonl", first_line=41)
    assert (caught.value.line, caught.value.column) == (42, 1)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_endless_nesting_is_one_clear_line(opening: str, closing: str) -> None:
    with pytest.raises(InputError, match="nested too deeply") as caught:
        parse(opening * 100_000 + "1" + closing * 100_000)
    assert caught.value.column == 99_999 * len(opening) + 1


def test_a_number_with_too_many_digits_is_one_clear_line() -> None:
    with pytest.raises(InputError, match="digits") as caught:
        parse('{"text": "9 11",\n "n": -' + "9" * 5000 + "}")
    assert (caught.value.line, caught.value.column) == (2, 7)


def test_a_long_number_in_a_string_is_no_number() -> None:
    assert parse('"' + "9" * 5000 + '"') == "9" * 5000


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf{}", b"{}"])
def test_a_byte_order_mark_is_dropped(data: bytes) -> None:
    assert decode(data) == "{}"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_other_encodings_are_named(encoding: str) -> None:
    with pytest.raises(InputError, match="UTF-16") as caught:
        decode('{"a": 1}'.encode(encoding), "f")
    assert str(caught.value).startswith("f:1:1: ")


@pytest.mark.parametrize("bad", [b"\xff", b"\xe9", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf0\x9f"])
def test_a_bad_byte_has_its_place(bad: bytes) -> None:
    with pytest.raises(InputError, match=f"byte 0x{bad[0]:02x} is not UTF-8") as caught:
        decode('{\n"é": "'.encode() + bad + b'"}')
    assert (caught.value.line, caught.value.column) == (2, 7)


@pytest.mark.parametrize(
    ("text", "reason"), [('"abc', "unterminated string starting"), ('"a\0b"', "invalid control character")]
)
def test_a_reason_ends_with_its_last_word(text: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert caught.value.message == f"not valid JSON: {reason}"
