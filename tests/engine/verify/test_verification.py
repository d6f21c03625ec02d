"""Replays against servers that report as they should, and against ones that do not."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from pkv_engine.verify.asking import Asking
from pkv_engine.verify.faults import Fault
from pkv_engine.verify.prompts import PromptDifference
from pkv_engine.verify.replay import Pace
from pkv_engine.verify.report import Report
from pkv_engine.verify.verification import Verifier, Verifying, find_server
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.renderer import Renderer

from .fake import FakeServer, events, stream

SYSTEM = {"role": "system", "content": "You answer in one word. " * 20}


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    turns = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    return {"request": {"model": "recorded-as", "messages": [SYSTEM, *turns], **more}}


CONVERSATION = [chat("Red?"), chat("Red?", "Yes", "Blue?"), chat("Red?", "Yes", "Blue?", "No", "Green? " * 30)]


@pytest.fixture
def verified(tmp_path: Path) -> Callable[..., Report]:
    """Verifies lines of traffic on a fake server."""

    def run(server: FakeServer, lines: list[dict[str, Any]], **choice: Any) -> Report:
        file = tmp_path / "traffic.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        choice = {"pace": Pace(), "asking": Asking(), "fresh": True} | choice
        renderer = choice.pop("renderer", None) or Renderer.load()

        async def verifying() -> Report:
            async with httpx.AsyncClient(transport=server.transport, base_url="http://fake") as client:
                found = await find_server(client)
                return await Verifier(client, found, renderer, Verifying(**choice)).verify(str(file))

        return asyncio.run(verifying())

    return run


def test_all_as_predicted(verified: Callable[..., Report]) -> None:
    server = FakeServer()
    report = verified(server, CONVERSATION)
    assert [row.status for row in report.rows] == ["as predicted"] * 3
    assert report.rows[2].reported and report.exit_status == 0
    assert not report.notes and not report.signatures and not report.prompt_differences
    assert {body["model"] for body in server.bodies} == {"fake"}
    assert all(body["max_tokens"] == 1 and body["stream"] for body in server.bodies)


def test_generated_tokens_come_back_and_count(verified: Callable[..., Report]) -> None:
    ids = list(range(100, 125))
    follow_up = [*ids, *[7] * 20]
    report = verified(FakeServer(), [{"token_ids": ids}, {"token_ids": follow_up}], asking=Asking(max_tokens=20))
    # 25 + 19 tokens have KV, and only 16 of them are prompt.
    assert [row.reported for row in report.rows] == [0, 32]
    assert report.exit_status == 0


def test_eviction_is_predicted(verified: Callable[..., Report]) -> None:
    prompts = [{"token_ids": [*range(start, start + 100)]} for start in (1, 1001, 2001)]
    report = verified(FakeServer(num_gpu_blocks=16), [*prompts, *prompts])
    assert report.exit_status == 0
    assert sum(row.reported or 0 for row in report.rows) < sum(row.prompt_tokens for row in report.rows) // 3


@pytest.mark.parametrize("engine", ["vllm", "sglang", "unknown"])
def test_no_report_and_zero_are_told_apart(verified: Callable[..., Report], engine: str) -> None:
    silent = verified(FakeServer(engine, reports=lambda hit: None, block_size=16), CONVERSATION)
    zero = verified(FakeServer(engine, reports=lambda hit: 0), CONVERSATION)
    assert zero.reporting == "reported" and zero.exit_status == 1
    if engine == "vllm":
        assert silent.reporting == "off" and silent.server.details_flag == "--enable-prompt-tokens-details"
        assert silent.total is not None and silent.total[0] == silent.total[1] > 0
        assert silent.exit_status == 0
    elif engine == "sglang":  # it leaves zeros out, and says that it reports
        assert silent.reporting == "reported"
    else:
        assert silent.reporting == "not reported" and silent.exit_status == 2


def test_another_template_is_diagnosed_first(verified: Callable[..., Report], tmp_path: Path) -> None:
    template = tmp_path / "other.jinja"
    template.write_text("Hello: {% for message in messages %}{{ message.content }}|{% endfor %}")
    for ids in (True, False):
        report = verified(FakeServer(ids=ids), CONVERSATION, renderer=Renderer.load(chat_template=str(template)))
        assert report.other_prompts == 3 and report.exit_status == 1
        assert report.prompt_differences[0].position == 0
        assert report.prompt_differences[0].ours.startswith("Hello")
        assert report.prompt_differences[0].theirs.startswith("<|im_start|>system")


def test_another_tokenizer_is_told_from_another_template() -> None:
    same = PromptDifference(0, 9, 8, 2, ours="Hello wor", theirs="Hello")
    assert "the tokenizer is another" in str(same)
    assert "'Hello' here, 'Bye' there" in str(PromptDifference(0, 9, 8, 2, ours="Hello", theirs="Bye"))
    assert "does not tell its prompt" in str(PromptDifference(0, 9, 8))


def test_without_a_model_the_server_tells_prompts(verified: Callable[..., Report], tmp_path: Path) -> None:
    report = verified(FakeServer(), CONVERSATION, exact_prompts=False)
    assert report.exit_status == 0 and not report.other_prompts
    with pytest.raises(InputError, match="--model"):
        verified(FakeServer("unknown"), CONVERSATION, exact_prompts=False)


@pytest.mark.parametrize(
    ("reports", "name"),
    [
        (lambda hit: 0, "everything cold"),
        (lambda hit: max(0, hit - 16), "one block short"),
    ],
)
def test_signatures(verified: Callable[..., Report], reports: Callable[[int], int], name: str) -> None:
    report = verified(FakeServer(reports=reports), CONVERSATION)
    assert [signature.name for signature in report.signatures] == [name]


def test_hits_that_end_at_the_previous_prompt(verified: Callable[..., Report]) -> None:
    class Forgetful(FakeServer):
        def run(self, prompt: Any, body: dict[str, Any]) -> tuple[int, list[int]]:
            hit, output = super().run(prompt, body)
            return min(hit, 48), output

    first, second = list(range(50)), [*range(50), *[7] * 60]
    report = verified(Forgetful(), [{"token_ids": first}, {"token_ids": second}], asking=Asking(max_tokens=50))
    assert [(row.predicted, row.reported) for row in report.rows] == [(0, 0), (96, 48)]
    assert [signature.name for signature in report.signatures] == ["generated text not reused"]


def test_a_warm_cache_is_named_and_can_be_reset(verified: Callable[..., Report]) -> None:
    server = FakeServer()
    verified(server, CONVERSATION)
    warm = verified(server, CONVERSATION, fresh=False)
    assert warm.warm and [signature.name for signature in warm.signatures] == ["warm cache"]
    assert verified(server, CONVERSATION, fresh=False, reset_cache=True).exit_status == 0
    assert server.resets == 1


def test_what_a_request_asked_for_itself_does_not_count(verified: Callable[..., Report]) -> None:
    server = FakeServer()
    asked = {"min_tokens": 5, "n": 3, "max_completion_tokens": 9, "stream": False, "user": "\ud800", "seed": 1}
    assert verified(server, [chat("Red?", **asked)]).exit_status == 0
    (body,) = server.bodies
    assert not {"min_tokens", "n", "max_completion_tokens"} & body.keys()
    assert (body["max_tokens"], body["stream"], body["seed"], body["user"]) == (1, True, 1, "\ud800")


USAGE = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}}
CHUNK = {"id": "r", "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "length"}]}


def broken(error: Exception, cause: Exception | None = None) -> httpx.Response:
    raise error from cause


@pytest.mark.parametrize(
    ("spoilt", "fault"),
    [
        (lambda: httpx.Response(404, json={"error": {"message": "The model `x` does not exist."}}), Fault.WRONG_MODEL),
        (lambda: httpx.Response(400, json={"detail": "too long"}), Fault.REFUSED),
        (lambda: httpx.Response(503, text="busy"), Fault.SERVER_ERROR),
        (lambda: httpx.Response(302, headers={"location": "http://elsewhere/"}), Fault.UNEXPECTED_STATUS),
        (lambda: stream(events(CHUNK, end=False)), Fault.TRUNCATED),
        (lambda: stream(b"data: {nonsense\n\n"), Fault.MALFORMED),
        (lambda: stream(events({"error": {"message": "out of memory"}})), Fault.MALFORMED),
        (lambda: httpx.Response(200, text="<html>"), Fault.MALFORMED),
        (lambda: stream(events(CHUNK)), Fault.NO_USAGE),
        (lambda: stream(events(CHUNK, {"usage": USAGE | {"prompt_tokens": -1}})), Fault.WRONG_USAGE),
        (lambda: stream(events(CHUNK, {"usage": USAGE | {"prompt_tokens": "5"}})), Fault.WRONG_USAGE),
        (
            lambda: stream(events(CHUNK, {"usage": USAGE | {"prompt_tokens_details": {"cached_tokens": 6}}})),
            Fault.WRONG_USAGE,
        ),
        (lambda: broken(httpx.ReadTimeout("slow")), Fault.TIMED_OUT),
        (lambda: broken(httpx.ConnectError("refused")), Fault.UNREACHABLE),
        (lambda: broken(httpx.ConnectError("handshake"), ssl.SSLError("bad certificate")), Fault.TLS),
        (lambda: broken(httpx.RemoteProtocolError("gone")), Fault.MALFORMED),
    ],
)
def test_faults_are_named_and_the_others_compared(
    verified: Callable[..., Report], spoilt: Callable[[], httpx.Response], fault: Fault
) -> None:
    server = FakeServer(spoil=lambda number, body: spoilt() if number == 1 else None)
    report = verified(server, CONVERSATION)
    assert list(report.faults) == [fault] and len(report.faults[fault]) == 1
    assert report.faults[fault][0].index == 1
    assert len(report.compared) == 2


def test_nothing_is_sent_to_a_server_that_is_gone(verified: Callable[..., Report]) -> None:
    server = FakeServer(spoil=lambda number, body: broken(httpx.ConnectError("refused")))
    report = verified(server, CONVERSATION * 4)
    assert len(server.bodies) == 5
    assert {fault: len(rows) for fault, rows in report.faults.items()} == {Fault.NOT_SENT: 7, Fault.UNREACHABLE: 5}
    assert report.exit_status == 2


def test_several_at_a_time_are_all_asked(verified: Callable[..., Report]) -> None:
    report = verified(FakeServer(), CONVERSATION * 5, pace=Pace(concurrency=4))
    assert len(report.compared) == 15 and report.approximate


def test_recorded_times(verified: Callable[..., Report]) -> None:
    timed = [{"timestamp": at / 100, **line} for at, line in enumerate(CONVERSATION)]
    assert verified(FakeServer(), timed, pace=Pace(recorded_times=True)).exit_status == 0
    with pytest.raises(InputError, match="timestamp"):
        verified(FakeServer(), CONVERSATION, pace=Pace(recorded_times=True))


def test_what_a_real_server_reported(verified: Callable[..., Report], shared: Path) -> None:
    """60 requests to vLLM 0.33 on a CPU in a cache of 41 blocks: every hit is predicted."""
    golden = json.loads((shared / "golden" / "trace_server_sequential.json").read_text())
    rows = golden["requests"]

    class Recorded(FakeServer):
        def run(self, prompt: Any, body: dict[str, Any]) -> tuple[int, list[int]]:
            row = rows[len(self.bodies) - 1]
            assert list(prompt) == row["prompt"]
            return row["cached"], row["output"]

    server = Recorded(num_gpu_blocks=golden["num_gpu_blocks"], block_size=golden["block_size"])
    lines = [
        {"token_ids": row["prompt"], **({"cache_salt": s} if (s := row.get("cache_salt")) else {})} for row in rows
    ]
    report = verified(server, lines)
    assert report.statuses == {"as predicted": len(rows)}
    assert report.exit_status == 0
