"""Traffic formats: what is read from them, and what is refused."""

from __future__ import annotations

import gzip
import io
import json
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.formats import BlockLine, Traffic, number_of_blocks, read_traffic
from pkv_lint.prompt.traffic import TrafficLine


def read(data: bytes | str | list[Any], **options: Any) -> Traffic:
    if isinstance(data, list):
        data = "".join(json.dumps(value) + "\n" for value in data)
    return read_traffic(io.BytesIO(data.encode() if isinstance(data, str) else data), name="f", **options)


def blocks(data: bytes | str | list[Any], **options: Any) -> list[BlockLine]:
    items = list(read(data, **options).items)
    assert all(isinstance(item, BlockLine) for item in items), items
    return [item for item in items if isinstance(item, BlockLine)]


def texts(data: bytes | str | list[Any]) -> list[TrafficLine]:
    items = list(read(data).items)
    assert all(isinstance(item, TrafficLine) for item in items), items
    return [item for item in items if isinstance(item, TrafficLine)]


def error(data: bytes | str | list[Any], **options: Any) -> str:
    """The one thing that is wrong with a file."""
    try:
        (found,) = (item for item in read(data, **options).items if isinstance(item, InputError))
    except InputError as refused:
        found = refused
    assert "\n" not in str(found)
    return str(found)


# Requests with their content.


@pytest.mark.parametrize(
    "value",
    [
        {"messages": []},
        {"request": {"messages": []}, "session_id": "s"},
        {"custom_id": "1", "url": "/v1/chat/completions", "body": {"messages": []}},
        {"token_ids": [1, 2]},
        {"model": "m", "prompt": "a completion"},
    ],
)
def test_requests(value: dict[str, Any]) -> None:
    traffic = read([value, {"messages": []}])
    assert (traffic.format, traffic.block_size) == ("requests", None)
    assert all(isinstance(item, TrafficLine) for item in traffic.items)


def test_the_length_of_a_reply_from_a_recorded_usage() -> None:
    line, other = texts([{"body": {"messages": []}, "usage": {"completion_tokens": 7}}, {"messages": [], "usage": 1}])
    assert (line.output_tokens, other.output_tokens) == (7, None)


# Mooncake.

MOONCAKE = {"timestamp": 1500, "input_length": 1100, "output_length": 52, "hash_ids": [0, 1, 9]}


def test_mooncake() -> None:
    traffic = read([MOONCAKE])
    assert (traffic.format, traffic.block_size) == ("mooncake", 512)
    (line,) = traffic.items
    assert isinstance(line, BlockLine)
    # The third block is not full.
    assert line.runs == array("q", [0, 1])
    assert (line.input_length, line.output_length, line.moment.seconds, line.moment.now) == (1100, 52, 1.5, None)


def test_ids_of_full_blocks_alone_will_do() -> None:
    (line,) = blocks([MOONCAKE | {"hash_ids": [5, 9]}])
    assert line.runs == array("q", [5, 5, 9, 9])


def test_short_prompts_have_no_full_block() -> None:
    (line,) = blocks([{"input_length": 5, "hash_ids": [3]}])
    assert line.runs == array("q") and line.output_length is None and line.moment.seconds is None


def test_another_block_size_can_be_stated() -> None:
    traffic = read([{"input_length": 40, "hash_ids": [1, 2, 3]}], block_size=16)
    assert traffic.block_size == 16
    (line,) = traffic.items
    assert isinstance(line, BlockLine) and line.runs == array("q", [1, 2])


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            {"hash_ids": [1] * 69},
            "f:1:76: hash_ids: 69 blocks of 512 tokens do not make a prompt of 1,100 tokens "
            "(blocks of 16 would: --block-size 16)",
        ),
        ({"hash_ids": []}, "f:1:76: hash_ids: 0 blocks of 512 tokens do not make a prompt of 1,100 tokens"),
        ({"hash_ids": 5}, "f:1:76: hash_ids: needs a list of block ids"),
        ({"hash_ids": [1, "a", 2]}, "f:1:80: hash_ids[1]: is not a block id"),
        ({"hash_ids": [1, -1, 2]}, "f:1:80: hash_ids[1]: is not a block id"),
        ({"hash_ids": [1, True, 2]}, "f:1:80: hash_ids[1]: is not a block id"),
        ({"input_length": 0}, "f:1:37: input_length: needs a whole number of at least 1"),
        ({"input_length": None}, "f:1:37: input_length: needs a whole number of at least 1"),
        ({"output_length": 1.5}, "f:1:60: output_length: needs a whole number of at least 0"),
        ({"timestamp": "noon"}, "f:1:15: timestamp: needs a number that is not negative"),
    ],
)
def test_contradictions_are_named(members: dict[str, Any], message: str) -> None:
    assert error([MOONCAKE | members]) == message


# WEKA.


def weka(*requests: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"id": "s1", "block_size": 64, "hash_id_scope": "local", "requests": list(requests)} | members


def turn(time: float, tokens: int, *runs: list[int], **members: Any) -> dict[str, Any]:
    return {"t": time, "type": "n", "in": tokens, "out": 9, "api_time": 2.5, "hash_ids_rle": list(runs)} | members


def test_sessions() -> None:
    traffic = read([weka(turn(0, 200, [1, 3]), turn(4, 450, [1, 3], [8, 11]))])
    items = list(traffic.items)
    assert (traffic.format, traffic.block_size) == ("weka", 64)
    first, second = (item for item in items if isinstance(item, BlockLine))
    assert (first.index, first.session_id, first.runs) == (0, "s1", array("q", [1, 3]))
    assert (second.index, second.runs, second.output_length) == (1, array("q", [1, 3, 8, 11]), 9)
    assert (second.moment.seconds, second.end.seconds) == (4, 6.5)


def test_ids_belong_to_their_session() -> None:
    lines = blocks([weka(turn(0, 200, [0, 2])), weka(turn(0, 200, [0, 2]), id="s2")])
    assert [line.runs for line in lines] == [array("q", [0, 2]), array("q", [3, 5])]
    lines = blocks([weka(turn(0, 200, [0, 2]), hash_id_scope="global") for _ in range(2)])
    assert lines[0].runs == lines[1].runs


def test_plain_ids_and_neighbouring_runs_are_one_run() -> None:
    plain = turn(0, 330, hash_ids=[7, 8, 9, 10, 11])
    del plain["hash_ids_rle"]
    lines = blocks([weka(plain, turn(1, 330, [7, 8], [9, 11]))])
    assert [line.runs for line in lines] == [array("q", [7, 11])] * 2


def test_nested_agents_count_when_asked_for() -> None:
    agent = {"t": 10, "type": "subagent", "requests": [turn(1, 70, [50, 50])]}
    session = weka(turn(0, 70, [1, 1]), agent, turn(30, 70, [1, 1]))
    assert [line.moment.seconds for line in blocks([session])] == [0, 30]
    assert [line.moment.seconds for line in blocks([session], subagents=True)] == [0, 11, 30]


@pytest.mark.parametrize(
    ("session", "message"),
    [
        (weka(turn(0, 64, [3, 1])), "requests[0].hash_ids_rle[0]: is not a pair [first, last] of block ids"),
        (weka(turn(0, 64, [1])), "requests[0].hash_ids_rle[0]: is not a pair [first, last] of block ids"),
        (weka(turn(0, 640, [1, 2])), "requests[0].hash_ids_rle: 2 blocks of 64 tokens do not make a prompt of 640"),
        (weka(turn(0, 0)), "requests[0].in: needs a whole number of at least 1"),
        (weka(turn(-1, 64, [1, 1])), "requests[0].t: needs a number that is not negative"),
        (weka(5), "requests[0]: needs a JSON object"),  # type: ignore[arg-type]
        (weka(requests={}), "requests: needs a list of requests"),
        (weka(block_size="64"), "block_size: needs a whole number of at least 1"),
    ],
)
def test_a_bad_session_is_named_and_left_out(session: dict[str, Any], message: str) -> None:
    good = weka(turn(0, 64, [1, 1]))
    items = list(read([good, session, good]).items)
    assert [type(item).__name__ for item in items] == ["BlockLine", "InputError", "BlockLine"]
    assert message in str(items[1]) and str(items[1]).startswith("f:2:")


def test_one_block_size_for_all() -> None:
    assert "its blocks hold 32 tokens, not 64" in error([weka(turn(0, 64, [1, 1])), weka(block_size=32)])
    assert "its blocks hold 64 tokens, not 16" in error([weka(turn(0, 64, [1, 1]))], block_size=16)


# Tables.


def test_azure() -> None:
    table = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n\n2023-11-16 18:17:04,3,0\n"
    for data in (table, table.replace("\n", "\r\n"), "\ufeff" + table):
        traffic = read(data)
        assert traffic.format == "azure" and traffic.block_size is None
        first, second = (item for item in traffic.items if isinstance(item, BlockLine))
        assert (first.input_length, first.output_length, first.runs, first.line) == (4808, 10, None, 2)
        assert second.moment.seconds is not None and first.moment.seconds is not None
        assert second.line == 4 and 0 < second.moment.seconds - first.moment.seconds < 0.1


def test_burstgpt() -> None:
    table = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,GPT-4,472,18,490,Conversation log\n"
    )
    (line,) = blocks(table)
    assert (line.moment.seconds, line.input_length, line.output_length) == (5.0, 472, 18)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2023-11-16 18:17:03,x,1", "f:2: 'x' is not a number of tokens of at least 1"),
        ("2023-11-16 18:17:03,0,1", "f:2: '0' is not a number of tokens of at least 1"),
        ("2023-11-16 18:17:03,5,-1", "f:2: '-1' is not a number of tokens of at least 0"),
        ("noon,5,1", "f:2: timestamp: needs ISO 8601 or seconds, not 'noon'"),
        ("nan,5,1", "f:2: timestamp: needs ISO 8601 or seconds, not nan"),
        ("inf,5,1", "f:2: timestamp: needs ISO 8601 or seconds, not inf"),
        ("-5,5,1", "f:2: timestamp: needs ISO 8601 or seconds, not -5"),
        ("2023-11-16 18:17:03", "f:2: has 1 columns, 3 are needed"),
        ("a\rb,5,1", "f:2: has 0 columns, 3 are needed"),
    ],
)
def test_bad_rows_are_named(row: str, message: str) -> None:
    assert error(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{row}\n2023-11-16 18:17:03,5,1\n") == message


def test_a_table_without_rows() -> None:
    assert error("TIMESTAMP,ContextTokens,GeneratedTokens\n") == "f: holds no request"


# Datasets of benchmarks.


def spoken(*turns: str) -> list[dict[str, str]]:
    return [{"from": turn.partition(" ")[0], "value": turn.partition(" ")[2]} for turn in turns]


@pytest.mark.parametrize("listed", [True, False])
def test_sharegpt(listed: bool) -> None:
    entries = [
        {"id": "a", "conversations": spoken("gpt hello", "human one", "gpt two", "human three", "gpt four", "human x")},
        {"id": "b", "conversations": spoken("system be brief", "human one", "gpt 1")},
        {"id": "c", "conversations": []},
    ]
    lines = texts(json.dumps(entries, indent=1) if listed else entries)
    assert [(line.index, line.session_id, line.completion) for line in lines] == [
        (0, "a", "two"),
        (1, "a", "four"),
        (2, "b", "1"),
    ]
    assert lines[1].request == {
        "messages": [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "three"},
        ]
    }
    assert lines[2].request is not None and lines[2].request["messages"][0]["role"] == "system"


@pytest.mark.parametrize(
    ("conversations", "message"),
    [
        (spoken("ghost boo"), "conversations[0].from: is none of human, "),
        ([{"from": "human"}], "conversations[0]: needs a text"),
        ([5], "conversations[0]: needs a JSON object"),
        (5, "conversations: needs a list of turns"),
    ],
)
def test_bad_conversations_are_named(conversations: Any, message: str) -> None:
    assert message in error([{"id": "a", "conversations": conversations}])


def test_custom_and_spec_bench() -> None:
    (line,) = texts([{"prompt": "What is it?", "output_tokens": 12}])
    assert line.request == {"messages": [{"role": "user", "content": "What is it?"}]} and line.output_tokens == 12
    (line,) = texts([{"question_id": 1, "category": "writing", "turns": ["Write.", "Rewrite."]}])
    assert line.request == {"messages": [{"role": "user", "content": "Write."}]}
    assert "prompt: needs a text" in error([{"prompt": ["a"]}])
    assert "turns: needs a list of texts" in error([{"turns": []}])


# Files.


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (MOONCAKE, {"messages": []}, "f:2:1: is requests, the file began as a trace with hash_ids"),
        ({"messages": []}, MOONCAKE, "f:2:1: is a trace with hash_ids, the file began as requests"),
        (weka(turn(0, 64, [1, 1])), MOONCAKE, "f:2:1: is a trace with hash_ids, the file began as a trace of sessions"),
    ],
)
def test_mixed_formats_are_named(first: dict[str, Any], second: dict[str, Any], message: str) -> None:
    assert error([first, second, first]) == message


def test_lines_behind_a_bad_first_line_decide() -> None:
    items = list(read('{"a":\n' + (json.dumps(MOONCAKE) + "\n") * 2).items)
    assert [type(item).__name__ for item in items] == ["InputError", "BlockLine", "BlockLine"]
    assert [item.index for item in items if isinstance(item, BlockLine)] == [1, 2]


def test_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = "".join(json.dumps(MOONCAKE) + "\n" for _ in range(2000)).encode()
    packed = gzip.compress(data)
    assert len(blocks(packed)) == 2000
    assert "the compressed data ends too early" in error(packed[:-200])
    table = gzip.compress(b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,5,1\n")
    assert len(blocks(table)) == 1
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert "install the package zstandard" in error(b"\x28\xb5\x2f\xfd\0\0")


def test_zstd() -> None:
    zstandard = pytest.importorskip("zstandard")
    assert len(blocks(zstandard.compress(json.dumps(MOONCAKE).encode()))) == 1


def test_lines_are_read_as_they_are_taken() -> None:
    class Endless(io.RawIOBase):
        line = json.dumps(MOONCAKE).encode() + b"\n"

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            buffer[: len(self.line)] = self.line
            return len(self.line)

    traffic = read_traffic(Endless())  # type: ignore[arg-type]
    assert [next(traffic.items).line for _ in range(3)] == [1, 2, 3]


PIECES = st.sampled_from(
    [
        json.dumps(MOONCAKE),
        json.dumps(weka(turn(0, 64, [1, 1]))),
        '{"conversations": [{"from": "human"}]}',
        '{"hash_ids": {}}',
        '{"requests": [{"requests": 1}]}',
        '{"turns": 1}',
        '{"prompt": 1}',
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "1,2,3",
        "[",
        "{}",
        "\n",
        "\0",
    ]
)


@settings(deadline=None)
@given(st.lists(st.one_of(PIECES.map(str.encode), st.binary(max_size=6)), max_size=6), st.booleans())
def test_any_lines_are_read_or_refused(pieces: list[bytes], subagents: bool) -> None:
    try:
        items = list(read(b"\n".join(pieces), subagents=subagents).items)
    except InputError as refused:
        assert "\n" not in str(refused)
        return
    assert items
    for item in items:
        if isinstance(item, InputError):
            assert "\n" not in str(item) and str(item).startswith("f")


# Real traces.


def test_the_published_traces(shared: Path) -> None:
    traces = shared / "data" / "traces"
    conversation = [item for item in read_traffic(traces / "mooncake_conversation_trace.jsonl").items]
    assert len(conversation) == 12_031 and all(isinstance(item, BlockLine) for item in conversation)
    azure = list(read_traffic(traces / "AzureLLMInferenceTrace_2023_code.csv").items)
    assert len(azure) == 8_819 and all(isinstance(item, BlockLine) for item in azure)


@pytest.mark.slow
@pytest.mark.parametrize(("subagents", "requests", "runs"), [(False, 48_658, 163_744), (True, 49_334, None)])
def test_the_coding_agents(shared: Path, subagents: bool, requests: int, runs: int | None) -> None:
    file = shared / "data" / "traces" / "weka_claude_code_traces_rle.jsonl.gz"
    items = [item for item in read_traffic(file, subagents=subagents).items if isinstance(item, BlockLine)]
    assert len(items) == requests
    if runs is not None:
        found = [item.runs for item in items if item.runs is not None]
        assert sum(len(item) for item in found) // 2 == runs
        assert sum(map(number_of_blocks, found)) == 93_832_730
