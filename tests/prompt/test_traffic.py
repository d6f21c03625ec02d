"""Reading requests from files."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import subprocess
import sys
from array import array
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pkv_lint.prompt import json_values
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.source import Position
from pkv_lint.prompt.traffic import TrafficLine, read_requests

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hallo\nWelt"}]}
LINE = json.dumps(BODY)


def read(data: bytes | str) -> list[TrafficLine | InputError]:
    return list(read_requests(io.BytesIO(data.encode() if isinstance(data, str) else data), name="f"))


def good(data: bytes | str) -> list[TrafficLine]:
    items = read(data)
    assert not [item for item in items if isinstance(item, InputError)]
    return [item for item in items if isinstance(item, TrafficLine)]


def refused(data: bytes | str) -> InputError:
    """The error of a stream that holds one bad thing or that is refused as a whole."""
    try:
        (item,) = read(data)
    except InputError as error:
        item = error
    assert isinstance(item, InputError)
    assert "\n" not in str(item) and str(item).startswith("f:" if item.line else "f: ")
    return item


# What a file may hold.


@pytest.mark.parametrize("indent", [None, 0, 2, "\t"])
def test_one_request(indent: Any) -> None:
    (line,) = good(json.dumps(BODY, indent=indent))
    assert line.request == BODY
    assert (line.index, line.file, line.line, line.column, line.prefix, line.api) == (0, "f", 1, 1, "", None)


@pytest.mark.parametrize("indent", [None, 0, 1])
def test_an_array(indent: Any) -> None:
    lines = good(json.dumps([BODY, {"request": BODY, "session_id": "s"}], indent=indent))
    assert [line.index for line in lines] == [0, 1]
    assert [line.request for line in lines] == [BODY, BODY]
    assert lines[1].session_id == "s"


def test_one_request_per_line() -> None:
    lines = good(f"{LINE}\n\n  \r\n{LINE}\r\n{LINE}")
    assert [(line.index, line.line, line.text) for line in lines] == [(0, 1, LINE), (1, 4, LINE), (2, 5, LINE)]


def test_values_one_after_the_other() -> None:
    text = json.dumps(BODY, indent=1)
    lines = good(f"{text}\n{text}  {text}")
    assert [(line.line, line.column) for line in lines] == [(1, 1), (10, 1), (18, 4)]
    assert all(line.text == text for line in lines)


def test_an_object_inside_a_request_is_not_taken_for_a_line() -> None:
    assert len(good('{"messages": [\n  {"role": "user", "content": "a"}\n]}')) == 1
    assert len(good('{"messages": [\n{"role": "user", "content": "a"}\n]}')) == 1


def test_native_lines() -> None:
    (line,) = good(
        json.dumps(
            {
                "timestamp": "2026-11-29T14:05:33Z",
                "end_timestamp": 1795961134,
                "session_id": 7,
                "tenant": "t",
                "request": BODY,
                "completion": "<think>",
                "output_token_ids": [1, 2],
                "output_tokens": 2,
                "path": "/v1/messages/render",
                "unknown": [],
            }
        )
    )
    assert line.request == BODY and line.prefix == "request" and line.api == "messages"
    assert (line.session_id, line.tenant, line.completion, line.output_tokens) == ("7", "t", "<think>", 2)
    assert line.output_token_ids == array("i", [1, 2])
    assert line.moment.now == datetime(2026, 11, 29, 14, 5, 33)
    assert line.end.seconds == 1795961134


def test_lines_of_token_ids() -> None:
    (line,) = good('{"token_ids": [5, 6, 7]}')
    assert line.request is None and line.token_ids == array("i", [5, 6, 7])
    (line,) = good('{"token_ids": [5], "model": "adapter", "cache_salt": "s"}')
    assert (line.model, line.cache_salt) == ("adapter", "s")


def test_members_may_be_null_and_names_empty() -> None:
    names = [
        "path",
        "timestamp",
        "end_timestamp",
        "session_id",
        "tenant",
        "completion",
        "output_token_ids",
        "output_tokens",
        "token_ids",
        "path",
    ]
    (line,) = good(json.dumps({"request": BODY} | dict.fromkeys(names)))
    assert line == TrafficLine(0, "f", 1, 1, line.text, "request", BODY)
    (line,) = good(json.dumps({"request": BODY, "session_id": ""}))
    assert line.session_id is None


@pytest.mark.parametrize(
    ("url", "api"),
    [
        ("/v1/chat/completions", "chat"),
        ("/v1/completions", "completions"),
        ("/v1/messages", "messages"),
        ("/v1/responses", "responses"),
        ("https://x.example/openai/deployments/d/chat/completions?api-version=1", "chat"),
    ],
)
def test_batch_lines(url: str, api: str) -> None:
    (line,) = good(json.dumps({"custom_id": "1", "method": "POST", "url": url, "body": BODY}))
    assert (line.request, line.prefix, line.api) == (BODY, "body", api)


def test_recordings() -> None:
    (line,) = good(json.dumps({"source": "x", "host": "h", "path": "a/file.json", "body": BODY, "usage": {}}))
    assert (line.request, line.prefix, line.api) == (BODY, "body", None)


def test_a_body_of_its_own_stays_one() -> None:
    (line,) = good(json.dumps(BODY | {"body": 1, "session_id": [], "timestamp": "x"}))
    assert line.prefix == "" and line.session_id is None


def test_the_zone_is_the_servers() -> None:
    stream = io.BytesIO(json.dumps({"request": BODY, "timestamp": 1795961133}).encode())
    (line,) = read_requests(stream, zone=timezone(timedelta(hours=2)))
    assert isinstance(line, TrafficLine) and line.moment.now == datetime(2026, 11, 29, 16, 5, 33)


# Places in the file.


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(BODY),
        json.dumps([BODY, BODY]),
        json.dumps([BODY, BODY], indent=2),
        json.dumps({"request": BODY}) + "\n" + json.dumps({"body": BODY}),
        "\n" + json.dumps(BODY, indent=1) + " " + json.dumps(BODY),
    ],
)
def test_places_are_those_of_the_file(data: str) -> None:
    for line in good(data):
        place = line.locate("messages[0].content", 5)
        assert data.split("\n")[place.line - 1][place.column - 1 :].startswith("\\nWelt")
        place = line.locate("messages", key=True)
        assert data.split("\n")[place.line - 1][place.column - 1 :].startswith('"messages"')


def test_a_byte_order_mark_is_no_column() -> None:
    (line,) = good(b"\xef\xbb\xbf" + LINE.encode())
    assert line.locate("model") == Position(1, 11)
    assert len(good(b"\xef\xbb\xbf[" + LINE.encode() + b"]")) == 1


@given(st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=3), min_size=1), st.booleans())
def test_every_layout_gives_the_same_requests(bodies: list[dict[str, str]], carriage_return: bool) -> None:
    end = "\r\n" if carriage_return else "\n"
    wrapped = [{"request": body} for body in bodies]
    layouts = [
        end.join(json.dumps(line) for line in wrapped),
        end.join(json.dumps(line, ensure_ascii=False, indent=1) for line in wrapped),
        json.dumps(wrapped),
        json.dumps(wrapped, indent=2).replace("\n", end),
    ]
    for layout in layouts:
        lines = good(layout)
        assert [line.request for line in lines] == bodies
        for line, body in zip(lines, bodies, strict=True):
            for name, value in body.items():
                place = line.locate(f"[{json.dumps(name)}]")
                rest = layout.split("\n")[place.line - 1][place.column - 1 :]
                assert json.JSONDecoder().raw_decode(rest)[0] == value


# What cannot be used.


def test_a_bad_line_does_not_stop_the_others() -> None:
    bad = b'{"messages": [\n5\n{"a": "\xff"}\n{"request": 5}\n' + LINE.encode() + b"}\n"
    items = read(LINE.encode() + b"\n" + bad + LINE.encode())
    assert [isinstance(item, TrafficLine) for item in items] == [True, False, False, False, False, False, True]
    assert isinstance(items[-1], TrafficLine) and items[-1].index == 6 and items[-1].line == 7
    errors = [item for item in items if isinstance(item, InputError)]
    assert [(error.line, error.column, error.code) for error in errors] == [
        (2, 15, "PKV901"),
        (3, 1, "PKV902"),
        (4, 8, "PKV901"),
        (5, 13, "PKV902"),
        (6, len(LINE) + 1, "PKV901"),
    ]
    assert str(errors[3]) == "f:5:13: request: needs a JSON object, not a number"


def test_a_bad_first_line_does_not_stop_the_others() -> None:
    items = read(f'{{"messages": [\n{LINE}\n{LINE}')
    assert [isinstance(item, TrafficLine) for item in items] == [False, True, True]
    assert isinstance(items[0], InputError) and (items[0].line, items[0].column) == (1, 15)


def test_a_broken_request_over_several_lines_is_one_error() -> None:
    error = refused('{\n  "messages": [\n    {"role": "user", "content": "a"}\n  ],\n  "n": 1,,\n}')
    assert (error.code, error.line, error.column) == ("PKV901", 5, 10)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("[{},{]", 1, 6),
        ("[{}\n,]", 2, 1),
        ("[{} {}]", 1, 5),
        ("[{}", 1, 4),
        ("[{}] x", 1, 6),
        ("{}\n{\n", 2, 2),
        ('{\n"a": 1}\n\n x', 4, 2),
    ],
)
def test_values_in_front_of_an_error_are_read(text: str, line: int, column: int) -> None:
    items = read(text)
    assert isinstance(items[0], TrafficLine)
    error = items[-1]
    assert isinstance(error, InputError) and len(items) == 2
    assert (error.code, error.line, error.column) == ("PKV901", line, column)


@pytest.mark.parametrize("data", [b"", b"\n \r\n\t\n", b"[]", b"[ ]\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_nothing_is_one_clear_line(data: bytes) -> None:
    assert str(refused(data)) == "f: holds no request"


@pytest.mark.parametrize(
    ("value", "kind"), [("5", "a number"), ("null", "null"), ('"a"', "a string"), ("true", "true"), ("[[1]]", "a list")]
)
def test_only_objects_are_requests(value: str, kind: str) -> None:
    error = refused(value)
    assert error.message == f"needs a JSON object, not {kind}" and error.code == "PKV902"


def test_a_list_of_messages_is_named() -> None:
    error = refused(json.dumps(BODY["messages"] * 3))
    assert str(error) == 'f:1:2: is a list of messages, not of requests; write {"messages": [...]}'


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"session_id": 1.5}, "session_id"),
        ({"session_id": True}, "session_id"),
        ({"session_id": ["a"]}, "session_id"),
        ({"tenant": {}}, "tenant"),
        ({"timestamp": "noon"}, "timestamp"),
        ({"timestamp": False}, "timestamp"),
        ({"end_timestamp": []}, "end_timestamp"),
        ({"completion": 5}, "completion"),
        ({"output_tokens": -1}, "output_tokens"),
        ({"output_tokens": 1.0}, "output_tokens"),
        ({"output_tokens": "1"}, "output_tokens"),
        ({"output_token_ids": "1 2"}, "output_token_ids"),
        ({"output_token_ids": [1, "2"]}, "output_token_ids[1]"),
        ({"token_ids": [True]}, "token_ids[0]"),
        ({"token_ids": [0, 1, -1]}, "token_ids[2]"),
        ({"token_ids": [2**31]}, "token_ids[0]"),
        ({"request": []}, "request"),
        ({"request": None}, "request"),
    ],
)
def test_wrong_types_are_named_with_their_place(members: dict[str, Any], path: str) -> None:
    text = json.dumps({"request": {}} | members)
    error = refused(text)
    assert (error.path, error.code, error.line) == (path, "PKV902", 1)
    assert error.column is not None
    value = json.loads(text)
    for name in path.replace("]", "").split("["):
        value = value[int(name) if name.isdigit() else name]
    assert json.JSONDecoder().raw_decode(text, error.column - 1)[0] == value


def test_batch_lines_without_a_prompt_are_refused() -> None:
    error = refused('{"custom_id": "1", "url": "/v1/embeddings", "body": {}}')
    assert str(error) == "f:1:27: url: is not an endpoint that takes a prompt"
    assert refused('{"custom_id": "1", "url": "/v1/responses", "body": null}').path == "body"


def test_deep_nesting_is_one_clear_line() -> None:
    items = read("[" * 100_000 + "]" * 100_000)
    assert len(items) == 1 and isinstance(items[0], InputError) and "nested too deeply" in str(items[0])
    items = read(f"{LINE}\n" + '{"a":' * 100_000 + f"\n{LINE}")
    assert [isinstance(item, TrafficLine) for item in items] == [True, False, True]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_other_encodings_are_named_once(encoding: str) -> None:
    assert "save it as UTF-8" in str(refused(f"{LINE}\n{LINE}\n".encode(encoding)))


def test_a_line_that_is_too_long_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_values, "MAX_LINE_BYTES", 1024 * 1024)
    long = json.dumps({"messages": [{"role": "user", "content": "x" * 5 * 1024 * 1024}]})
    for data in (f"{LINE}\n{long}\n{LINE}", f"{long}\n{LINE}", f"{LINE}\n{long}"):
        items = read(data)
        (error,) = (item for item in items if isinstance(item, InputError))
        assert error.message == "the line is longer than 1 MiB"
        assert error.line == (1 if data.startswith(long) else 2)
        assert [item.line for item in items if isinstance(item, TrafficLine)] == [
            number + 1 for number, line in enumerate(data.split("\n")) if line == LINE
        ]
    edge = LINE + " " * (1024 * 1024 - 1 - len(LINE))
    assert len(good(f"{edge}\n{LINE}")) == 2


def test_a_document_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_values, "MAX_DOCUMENT_BYTES", 1024)
    assert len(good(json.dumps([BODY] * 100))) == 100  # the elements of an array are held one at a time
    monkeypatch.setattr(json_values, "MAX_LINE_BYTES", 1024)
    long = {"messages": [{"role": "user", "content": "x" * 3 * 1024 * 1024}]}
    items = read(json.dumps([BODY, long, BODY]))
    assert [isinstance(item, TrafficLine) for item in items] == [True, False]
    assert str(items[1]) == f"f:1:{len(LINE) + 4}: an element of the array is longer than 0 MiB"
    # One bad line in front of more lines than can be held: they are lines.
    items = read('{"a\n' + f"{LINE}\n" * 100)
    assert [isinstance(item, TrafficLine) for item in items] == [False] + [True] * 100


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("indent", [None, 1])
def test_an_array_in_pieces(monkeypatch: pytest.MonkeyPatch, chunk: int, indent: int | None) -> None:
    """However few bytes of an array are held, it reads the same."""
    values = [BODY, {"messages": [], "n": 12345, "x": [True, None, -1.5e10, "\u00e9\\n\U0001f600"]}, {"body": BODY}]
    text = json.dumps(values, indent=indent, ensure_ascii=False)
    broken = [text, text[:-1], text[:-5], text.replace("null", "nul"), text.replace("12345", "1234x"), text + " x"]
    broken += [text.replace("}", "},", 1), text.replace('"n"', "n"), text.replace("\\n", "\\q"), text[:-1] + ",]"]
    expected = [list(map(repr, map(shown, read(each)))) for each in broken]
    monkeypatch.setattr(json_values, "CHUNK", chunk)
    monkeypatch.setattr(json_values, "MAX_LINE_BYTES", 8)
    assert [list(map(repr, map(shown, read(each)))) for each in broken] == expected


def shown(item: TrafficLine | InputError) -> object:
    return item if isinstance(item, TrafficLine) else str(item)


@given(
    st.lists(
        st.one_of(
            st.sampled_from([LINE.encode(), b"\n", b"\r\n", b"[", b"]", b"{", b"}", b",", b'"request":', b"\\", b'"']),
            st.sampled_from([b"\xef\xbb\xbf", b"\xff", b"\0", b"NaN", b"1e999", b'{"request": {}}', b'{"body": 1}']),
            st.binary(max_size=6),
        ),
        max_size=10,
    )
)
def test_any_bytes_are_read_or_refused(pieces: list[bytes]) -> None:
    try:
        items = read(b"".join(pieces))
    except InputError as error:
        assert "\n" not in str(error) and str(error).startswith("f")
        return
    assert items
    for index, item in enumerate(items):
        if isinstance(item, TrafficLine):
            assert item.index == index and item.locate("") >= Position(1, 1)
        else:
            assert "\n" not in str(item) and str(item).startswith("f:") and item.code in ("PKV901", "PKV902")


# Streams.


def test_compressed_files_are_recognised(tmp_path: Path) -> None:
    file = tmp_path / "traffic.jsonl"  # the name does not matter
    file.write_bytes(gzip.compress(f"{LINE}\n".encode()) + gzip.compress(LINE.encode()))
    lines = list(read_requests(file))
    assert len(lines) == 2
    assert isinstance(lines[0], TrafficLine) and lines[0].file == str(file)


def test_damaged_gzip_is_one_clear_line() -> None:
    packed = gzip.compress("\n".join(json.dumps({"n": os.urandom(50).hex()}) for _ in range(5000)).encode())
    assert str(refused_late(packed[:-1000])) == "f: the compressed data ends too early"
    assert str(refused_late(packed[:1000] + bytes(1000) + packed[2000:])).startswith(
        "f: the compressed data is damaged"
    )
    assert "damaged" in str(refused_late(gzip.compress(LINE.encode())[:-4] + b"abcd"))


def refused_late(data: bytes) -> InputError:
    with pytest.raises(InputError) as caught:
        read(data)
    return caught.value


def test_zstd_is_read_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert "install the package zstandard" in str(refused(b"\x28\xb5\x2f\xfd\0\0"))


def test_zstd() -> None:
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.compress(f"{LINE}\n".encode()) + zstandard.compress(LINE.encode())
    assert len(good(packed)) == 2
    assert "damaged" in str(refused_late(packed[:8] + b"abc"))
    big = zstandard.compress("\n".join(json.dumps({"n": os.urandom(50).hex()}) for _ in range(5000)).encode())
    assert "ends too early" in str(refused_late(big[:-1000]))


def test_the_stream_stays_open() -> None:
    stream = io.BytesIO(LINE.encode())
    list(read_requests(stream))
    assert not stream.closed


def test_stdin_is_read() -> None:
    code = (
        "from pkv_lint.prompt.traffic import read_requests\n"
        "for item in read_requests('-'): print(item.file, item.line)\n"
        "import sys; print(sys.stdin.buffer.closed)"
    )
    for data in (f"{LINE}\n{LINE}".encode(), gzip.compress(f"{LINE}\n{LINE}".encode())):
        done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True)
        assert done.stdout.decode().split("\n") == ["stdin 1", "stdin 2", "False", ""], done.stderr


def test_files_that_cannot_be_opened_are_one_clear_line(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    cases: list[tuple[str | Path, str]] = [
        (tmp_path, "is a directory"),
        (tmp_path / "none", "no such file"),
        (fifo, "is not a regular file"),
        ("/dev/null", "is not a regular file"),
        ("a\0b", "is not a file name"),
        ("x" * 5000, "cannot be opened (file name too long)"),
        (tmp_path / "none" / "deeper", "no such file"),
    ]
    for path, message in cases:
        with pytest.raises(InputError) as caught:
            list(read_requests(path))
        assert str(caught.value).startswith(f"{path}: {message}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_without_permission_are_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "secret.json"
    file.write_text(LINE)
    file.chmod(stat.S_IWUSR)
    with pytest.raises(InputError, match="no permission"):
        list(read_requests(file))


def test_lines_are_read_as_they_come() -> None:
    reader, writer = os.pipe()
    with open(reader, "rb") as stream, open(writer, "wb", buffering=0) as out:
        out.write(f"{LINE}\n".encode())
        lines = read_requests(stream)
        assert isinstance(next(lines), TrafficLine)
        out.write(f"{LINE}\n".encode())
        assert isinstance(next(lines), TrafficLine)


def test_real_requests_are_read(shared: Path) -> None:
    files = [
        *sorted((shared / "cases").glob("*/*.jsonl")),
        *sorted((shared / "data/requests").glob("[0-9]*.json")),
        *sorted((shared / "data/requests").glob("gt_*.jsonl")),
        *sorted((shared / "data/chat_golden").glob("edge.*.gz")),
        *sorted((shared / "data/chat_golden").glob("api.*.gz")),
    ]
    assert files
    for file in files:
        for item in read_requests(file, zone=UTC):
            assert isinstance(item, TrafficLine) and item.request is not None, f"{item}"
            if file.name.startswith("api."):
                assert item.api in ("messages", "responses")
