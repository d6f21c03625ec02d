"""PKV402: reasoning that a client does not send back, where the template would print it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .agents import Run, agent, chat, prose
from .conversations import Line, Message, codes, lint, loud
from .habits import DROPS_REASONING, KEEPS_REASONING, OPENS_A_THOUGHT, PLAIN
from .test_pkv401 import generated, inline

WORK = agent(3, reasoning=True)
FIELDS = ("reasoning_content", "reasoning")


def bare(message: Message) -> Message:
    return {name: value for name, value in message.items() if name not in FIELDS}


def left_out(messages: list[Message], turn: int) -> list[Message]:
    return [bare(message) for message in messages]


def left_out_since(first: int, keep: int = 0) -> Callable[[list[Message], int], list[Message]]:
    """From a request on, reasoning is sent with the newest messages only."""
    return lambda m, turn: [bare(x) if turn >= first and at < len(m) - keep else x for at, x in enumerate(m)]


def newest_only(messages: list[Message], turn: int) -> list[Message]:
    """Reasoning is sent back until the next question."""
    last = max(at for at, message in enumerate(messages) if message["role"] == "user")
    return [bare(message) if at < last else message for at, message in enumerate(messages)]


def unopened(message: Message) -> str:
    """What is generated where the prompt itself opened the thought."""
    return generated(message).removeprefix("<think>\n")


FAULTS: dict[str, tuple[list[Line], str | None, str, int]] = {
    "never sent back": (WORK.sent(left_out, completions=generated), KEEPS_REASONING, "messages[2]", 1),
    "with the built-in layout": (WORK.sent(left_out, completions=generated), None, "messages[2]", 1),
    "without sessions": (WORK.sent(left_out, completions=generated, session=None), KEEPS_REASONING, "messages[2]", 1),
    "within the calls of a turn, where it is printed": (
        agent(1, 4, reasoning=True).sent(left_out, completions=generated),
        DROPS_REASONING,
        "messages[2]",
        1,
    ),
    "a thought that the prompt opens": (
        WORK.sent(left_out, completions=unopened),
        OPENS_A_THOUGHT,
        "messages[2]",
        1,
    ),
    "only one reply without it": (
        WORK.sent(lambda m, t: [bare(x) if at == 5 else x for at, x in enumerate(m)], completions=generated),
        KEEPS_REASONING,
        "messages[6]",
        3,
    ),
    "an empty string instead": (
        WORK.sent(
            lambda m, t: [{**bare(x), "reasoning_content": ""} if x["role"] == "assistant" else x for x in m],
            completions=generated,
        ),
        KEEPS_REASONING,
        "messages[2]",
        1,
    ),
    "sent, and later no more": (WORK.sent(left_out_since(4)), KEEPS_REASONING, "messages[2]", 4),
    "sent with the newest only": (WORK.sent(left_out_since(0, 3)), KEEPS_REASONING, "messages[2]", 2),
    "in the text, and later no more": (
        WORK.sent(lambda m, t: left_out(m, t) if t >= 5 else inline(m, t)),
        None,
        "messages[2]",
        5,
    ),
    "a field of the other name, and later no more": (
        WORK.sent(
            lambda m, t: (
                left_out(m, t)
                if t >= 5
                else [{("reasoning" if k == "reasoning_content" else k): v for k, v in x.items()} for x in m]
            )
        ),
        None,
        "messages[2]",
        5,
    ),
    "forty steps in": (agent(1, 42, reasoning=True).sent(left_out_since(40)), KEEPS_REASONING, "messages[2]", 40),
}


@pytest.mark.parametrize("name", FAULTS)
def test_missing_reasoning_is_told(name: str) -> None:
    lines, template, path, request = FAULTS[name]
    (finding,) = loud(lint(lines, chat_template=template))
    assert (finding.code, finding.blame, finding.path, finding.request) == ("PKV402", "client", path, request)
    assert finding.tokens_lost > 0


def thoughtless(message: Message) -> str:
    return message["content"] + "<|im_end|>"


SILENT: dict[str, tuple[list[Line], str | None]] = {
    "sent back": (WORK.sent(completions=generated), KEEPS_REASONING),
    "sent back, with the built-in layout": (WORK.sent(completions=generated), None),
    "nothing is known of what was generated": (WORK.sent(left_out), KEEPS_REASONING),
    "a template that prints no reasoning": (WORK.sent(left_out, completions=generated), PLAIN),
    "a template that drops it at the next question": (
        chat(4).sent(completions=lambda m: f"<think>\n{prose(m['content'])}\n</think>\n\n{m['content']}<|im_end|>"),
        DROPS_REASONING,
    ),
    "old reasoning left out, with the built-in layout": (WORK.sent(newest_only), None),
    "answers without their reasoning, with the built-in layout": (
        chat(4).sent(completions=lambda m: f"<think>\n{prose(m['content'])}\n</think>\n\n{m['content']}<|im_end|>"),
        None,
    ),
    "nothing was thought": (agent(2).sent(completions=generated), KEEPS_REASONING),
    "an empty thought": (
        chat(3).sent(completions=lambda m: "<think>\n\n</think>\n\n" + m["content"] + "<|im_end|>"),
        KEEPS_REASONING,
    ),
    "the word in an answer": (
        chat(3).sent(completions=lambda m: m["content"].replace(" ", " </think> ", 1)),
        PLAIN,
    ),
    "thoughts in the text as they were generated": (WORK.sent(inline, completions=generated), None),
    "a sample that nobody went on with": (
        [*WORK.sent(completions=generated)[:2], *WORK.sent(completions=lambda m: generated(m) + "x")[1:2]],
        KEEPS_REASONING,
    ),
    "reasoning under its other name": (
        WORK.sent(
            lambda m, t: [{("reasoning" if k == "reasoning_content" else k): v for k, v in x.items()} for x in m],
            completions=generated,
        ),
        KEEPS_REASONING,
    ),
}


@pytest.mark.parametrize("name", SILENT)
def test_reasoning_that_nobody_misses_is_left_alone(name: str) -> None:
    lines, template = SILENT[name]
    assert codes(lint(lines, chat_template=template)) == []


def test_the_template_is_not_blamed_for_the_client() -> None:
    """The client drops it, and so would the template: the template's doing."""
    lines = WORK.sent(lambda m, t: left_out_since(3)(m, t))
    assert codes(lint(lines, chat_template=DROPS_REASONING)) == ["PKV401"]
    assert codes(lint(lines, chat_template=KEEPS_REASONING)) == ["PKV402"]


def test_answers_alone() -> None:
    run = Run(chat(3).messages, [1, 3, 5])
    assert codes(lint(run.sent(completions=thoughtless), chat_template=KEEPS_REASONING)) == []
