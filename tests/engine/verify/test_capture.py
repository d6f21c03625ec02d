"""What an agent sends through the `openai` client to a server of ours, captured and judged."""

from __future__ import annotations

import openai
import pytest

import pkv_lint

pytest.importorskip("uvicorn")

from ..server.conftest import serving

HANDBOOK = "You answer guests of a hotel in one sentence. " * 20


def run_agent(url: str, *, clock: bool) -> None:
    with openai.OpenAI(api_key="none", base_url=f"{url}/v1") as client:
        said: list[dict[str, str]] = []
        for turn in range(3):
            system = f"It is 09:0{turn}:31.\n{HANDBOOK}" if clock else HANDBOOK
            said.append({"role": "user", "content": f"Question {turn}?"})
            messages = [{"role": "system", "content": system}, *said]
            reply = client.chat.completions.create(model="typist", messages=messages, max_tokens=4, stream=turn == 1)  # type: ignore[call-overload]
            if turn == 1:
                text = "".join(chunk.choices[0].delta.content or "" for chunk in reply if chunk.choices)
            else:
                text = reply.choices[0].message.content
            said.append({"role": "assistant", "content": text})


def test_an_agent_under_test() -> None:
    with serving() as server, pkv_lint.capture() as traffic:
        run_agent(server.url, clock=False)
    assert [len(line["request"]["messages"]) for line in traffic] == [2, 4, 6]
    pkv_lint.assert_prefix_stable(traffic)


def test_an_agent_with_a_clock() -> None:
    with serving() as server, pkv_lint.capture() as traffic:
        run_agent(server.url, clock=True)
    with pytest.raises(AssertionError, match="PKV101"):
        pkv_lint.assert_prefix_stable(traffic)
