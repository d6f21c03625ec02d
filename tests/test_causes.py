"""Causes and their cost on small traffics, with the built-in layout."""

from __future__ import annotations

import io
import json
from datetime import datetime
from typing import Any

import pytest

from pkv_lint.causes import Replayed, replay
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.traffic import read_requests
from pkv_lint.turns import Turn, read_turns

NOW = datetime(2026, 5, 11, 12, 0, 0)
RULES = "\n".join(f"Rule {i}: answer in short sentences and name the file you changed." for i in range(12))


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer.load()


def replayed(renderer: Renderer, lines: list[dict[str, Any]], block_size: int = 16) -> list[Replayed]:
    text = "\n".join(json.dumps(line) for line in lines)
    turns = list(read_turns(read_requests(io.BytesIO(text.encode())), renderer, NOW))
    assert all(isinstance(turn, Turn) for turn in turns), turns
    return list(replay([turn for turn in turns if isinstance(turn, Turn)], renderer, block_size))


def natures(items: list[Replayed]) -> list[list[str]]:
    return [[cause.nature for cause in item.causes] for item in items]


def chat(*contents: str, system: str = RULES, **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]
    return {"messages": [{"role": "system", "content": system}, *messages], **more}


def line(request: dict[str, Any], session: str = "s", **more: Any) -> dict[str, Any]:
    return {"session_id": session, "request": request, **more}


def test_a_growing_conversation_has_no_causes_and_hits_all_it_can(renderer: Renderer) -> None:
    first, second = chat("Hello there."), chat("Hello there.", "Good day.", "What is new?")
    items = replayed(renderer, [line(first), line(second)])
    assert natures(items) == [[], []]
    shared = len(items[0].turn.ids)
    assert items[1].hit == shared // 16 * 16


def test_a_prompt_of_whole_blocks_recomputes_its_last_one(renderer: Renderer) -> None:
    request = chat("Hello there.")
    length = len(renderer.render(request).token_ids)
    items = replayed(renderer, [line(request), line(request)], block_size=length)
    assert [item.hit for item in items] == [0, 0]


def test_two_causes_in_one_request_are_undone_in_prompt_order_and_each_gets_its_gain(renderer: Renderer) -> None:
    def body(clock: str, reply: str, *more: str) -> dict[str, Any]:
        return chat("Please look at the ledger module.", reply, "And now the tests.", *more, system=f"{clock}\n{RULES}")

    long = "I looked at the ledger module and found nothing that needs a change. " * 6
    items = replayed(
        renderer,
        [
            line(body("Time: 10:00:01", long)),
            line(body("Time: 10:00:09", long.replace("nothing", "something", 1), "They pass.", "Good.")),
        ],
    )
    clock, edit = items[1].causes
    assert (clock.nature, edit.nature) == ("timestamp", "history")
    assert clock.hit == items[1].hit == 0
    assert clock.hit_without == edit.hit > 100
    assert edit.hit_without == len(items[0].turn.ids) // 16 * 16
    assert clock.tokens_lost + edit.tokens_lost == edit.hit_without - items[1].hit


def test_generated_text_counts_as_cached(renderer: Renderer) -> None:
    reply = "The answer is that the parser drops the last line of the file. " * 3
    first, second = chat("Why?"), chat("Why?", reply, "Fix it.")
    bare = replayed(renderer, [line(first), line(second)])
    told = replayed(renderer, [line(first, completion=reply), line(second)])
    assert told[1].hit > bare[1].hit


def test_a_reply_that_comes_back_as_other_text_is_a_cause(renderer: Renderer) -> None:
    reply = "The answer is that the parser drops the last line of the file. " * 6
    items = replayed(renderer, [line(chat("Why?"), completion=reply), line(chat("Why?", reply[10:], "Fix it."))])
    assert natures(items)[1] == ["generated"]


def test_another_salt_loses_everything_that_is_shared(renderer: Renderer) -> None:
    items = replayed(
        renderer,
        [
            line(chat("One."), cache_salt="a") | {"request": chat("One.", cache_salt="a")},
            line(chat("Two.", cache_salt="b")),
        ],
    )
    (cause,) = items[1].causes
    assert cause.nature == "salt"
    assert cause.hit == 0 < cause.hit_without


def test_other_models_do_not_share_a_cache(renderer: Renderer) -> None:
    items = replayed(renderer, [line(chat("One.", model="a")), line(chat("One.", model="b"))])
    assert items[1].hit == 0
    assert natures(items) == [[], []]


def test_a_retry_with_another_question_is_not_a_rewritten_history(renderer: Renderer) -> None:
    first = chat("Look at the ledger.", "It is fine.", "And the tests?")
    second = chat("Look at the ledger.", "It is fine.", "And the docs?")
    assert natures(replayed(renderer, [line(first), line(second)])) == [[], []]


def test_unnamed_requests_join_the_conversation_they_continue(renderer: Renderer) -> None:
    one, other = chat("Look at the ledger."), chat("Write a poem.")
    longer = chat("Look at the ledger.", "It is fine.", "And the tests?")
    items = replayed(renderer, [{"request": body} for body in (one, other, longer)])
    assert items[2].session == items[0].session != items[1].session


def test_a_summary_of_the_same_history_is_an_auxiliary_request(renderer: Renderer) -> None:
    history = ["Look at the ledger module. " * 8, "It is fine. " * 12, "And the tests? " * 8]
    main = chat(*history)
    summary = chat(*history, "They pass.", "Sum this up.", system="You write one-line summaries of conversations.")
    items = replayed(renderer, [line(main), line(summary)])
    assert natures(items)[1] == ["auxiliary"]


def test_what_the_template_does_not_print_is_no_cause(renderer: Renderer) -> None:
    def body(user: str, *contents: str) -> dict[str, Any]:
        return chat(*contents, user=user, metadata={"trace": user}, temperature=len(user))

    items = replayed(renderer, [line(body("a", "Hi.")), line(body("bcd", "Hi.", "Yes?", "Bye."))])
    assert natures(items) == [[], []]


def test_named_sessions_that_only_end_alike_are_two_conversations(renderer: Renderer) -> None:
    end = ["Shall I go on with the next one?", "Yes, go on, please, and tell me when it is done."]
    one = chat("Look at the ledger.", "It is fine. " * 9, "And the tests?", *end)
    other = chat("Write a poem on rain.", "Drops fall. " * 9, "And on snow?", *end)
    items = replayed(renderer, [line(one, "a"), line(other, "b")])
    assert natures(items) == [[], []]
