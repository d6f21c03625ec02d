"""PKV401: reasoning that the template prints no more."""

from __future__ import annotations

import pytest

from .agents import TOOLS, Change, Run, agent, assistant, chat, prose, user
from .conversations import Line, Message, codes, conversation, lint, loud
from .habits import (
    CLEARS_UNLESS_ASKED,
    DROPS_REASONING,
    DROPS_UNLESS_ASKED,
    KEEPS_LAST_ONLY,
    KEEPS_REASONING,
    PLAIN,
    STRIPS_INLINE,
)

WORK = agent(3, reasoning=True)


def inline(messages: list[Message], turn: int) -> list[Message]:
    """Reasoning in the text, as raw completions have it."""
    out = []
    for message in messages:
        thought = message.pop("reasoning_content", None)
        text = f"<think>\n{thought}\n</think>\n\n{message['content']}" if thought else message["content"]
        out.append({**message, "content": text})
    return out


def renamed(messages: list[Message], turn: int) -> list[Message]:
    return [{("reasoning" if k == "reasoning_content" else k): v for k, v in m.items()} for m in messages]


def dropped_by_client(messages: list[Message], turn: int) -> list[Message]:
    """The client leaves out what the template would not print."""
    last = max(at for at, m in enumerate(messages) if m["role"] == "user")
    return [
        {k: v for k, v in m.items() if k != "reasoning_content"} if at < last else m for at, m in enumerate(messages)
    ]


def generated(message: Message) -> str:
    """A reply as the model would have written it."""
    thought = f"<think>\n{message['reasoning_content']}\n</think>\n\n" if message.get("reasoning_content") else ""
    calls = "".join(
        f'\n<tool_call>\n{{"name": "{c["function"]["name"]}", "arguments": {c["function"]["arguments"]}}}\n</tool_call>'
        for c in message.get("tool_calls", ())
    )
    return thought + message["content"] + calls + "<|im_end|>"


FAULTS: dict[str, tuple[list[Line], str, str, int]] = {
    "a new question": (WORK.sent(), DROPS_REASONING, "messages[2]", 3),
    "with tools": (WORK.sent(tools=TOOLS), DROPS_REASONING, "messages[2]", 3),
    "with completions": (WORK.sent(completions=generated), DROPS_REASONING, "messages[2]", 3),
    "without sessions": (WORK.sent(session=None), DROPS_REASONING, "messages[2]", 3),
    "the other name of the field": (WORK.sent(renamed), DROPS_REASONING, "messages[2]", 3),
    "without a system prompt": (WORK.sent(system=""), DROPS_REASONING, "messages[1]", 3),
    "in the text": (WORK.sent(inline), STRIPS_INLINE, "messages[2]", 3),
    "only the last is kept": (agent(1, 5, reasoning=True).sent(), KEEPS_LAST_ONLY, "messages[2]", 2),
    "forty steps in": (agent(2, 40, reasoning=True).sent(), DROPS_REASONING, "messages[2]", 41),
    "the client left it out as well": (WORK.sent(dropped_by_client), DROPS_REASONING, "messages[2]", 3),
    "reasoning in some replies": (
        WORK.sent(lambda m, t: [{**x, "reasoning_content": None} if at == 1 else x for at, x in enumerate(m)]),
        DROPS_REASONING,
        "messages[4]",
        3,
    ),
    "a template with a switch": (WORK.sent(), DROPS_UNLESS_ASKED, "messages[2]", 3),
    "a switch turned off": (
        WORK.sent(chat_template_kwargs={"preserve_thinking": False}),
        DROPS_UNLESS_ASKED,
        "messages[2]",
        3,
    ),
    "in turns with another session": (
        [
            line
            for pair in zip(WORK.sent(), agent(3, reasoning=True, topic="b").sent(session="b"), strict=True)
            for line in pair
        ],
        DROPS_REASONING,
        "messages[2]",
        6,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_dropped_reasoning_is_told_and_the_template_blamed(name: str) -> None:
    lines, template, path, request = FAULTS[name]
    (finding,) = loud(lint(lines, chat_template=template))
    assert (finding.code, finding.blame, finding.path, finding.request) == ("PKV401", "template", path, request)
    assert finding.tokens_lost > 0


def changed(change: Change) -> list[Line]:
    return WORK.sent(change)


SILENT: dict[str, tuple[list[Line], str | None]] = {
    "a template that keeps it": (WORK.sent(), KEEPS_REASONING),
    "with completions": (WORK.sent(completions=generated), KEEPS_REASONING),
    "a template that never prints it": (WORK.sent(), PLAIN),
    "the built-in layout": (WORK.sent(), None),
    "calls within one turn": (agent(1, 6, reasoning=True).sent(), DROPS_REASONING),
    "a switch turned on": (WORK.sent(chat_template_kwargs={"preserve_thinking": True}), DROPS_UNLESS_ASKED),
    "the other switch turned off": (WORK.sent(chat_template_kwargs={"clear_thinking": False}), CLEARS_UNLESS_ASKED),
    "no reasoning": (agent(3).sent(), DROPS_REASONING),
    "reasoning that was never sent": (chat(4).sent(), DROPS_REASONING),
    "empty reasoning": (
        agent(3).sent(lambda m, t: [{**x, "reasoning_content": ""} if x["role"] == "assistant" else x for x in m]),
        DROPS_REASONING,
    ),
    "reasoning of a user, which is none": (
        chat(3).sent(lambda m, t: [{**x, "reasoning_content": "x" * 99} if x["role"] == "user" else x for x in m]),
        DROPS_REASONING,
    ),
    "the word in a question": (
        Run([user("What does <think> mean? " + prose(1)), *chat(3).messages[1:]], [1, 3, 5]).sent(),
        STRIPS_INLINE,
    ),
    "a branch that stops before": (
        [*WORK.sent()[:3], *Run([WORK.messages[0], assistant(prose("other")), user(prose("q"))], [3]).sent()],
        DROPS_REASONING,
    ),
}


@pytest.mark.parametrize("name", SILENT)
def test_reasoning_that_stays_is_left_alone(name: str) -> None:
    lines, template = SILENT[name]
    assert codes(lint(lines, chat_template=template)) == []


@pytest.mark.parametrize(
    ("template", "advice"),
    [
        (DROPS_UNLESS_ASKED, "Set chat_template_kwargs.preserve_thinking to true to keep it."),
        (CLEARS_UNLESS_ASKED, "Set chat_template_kwargs.clear_thinking to false to keep it."),
        (DROPS_REASONING, "Not the client's doing: use a template that keeps earlier reasoning, or accept one prefill"),
    ],
)
def test_the_switch_is_named_where_there_is_one(template: str, advice: str) -> None:
    (finding,) = loud(lint(WORK.sent(), chat_template=template))
    assert finding.fix.startswith(advice)


def test_reasoning_that_was_not_sent_and_would_not_be_printed_is_a_note() -> None:
    run = chat(3)

    def thought(message: Message) -> str:
        return f"<think>\n{prose(message['content'], 30)}\n</think>\n\n{message['content']}<|im_end|>"

    (finding,) = lint(run.sent(completions=thought), chat_template=DROPS_REASONING)
    assert (finding.code, finding.severity, finding.path) == ("PKV401", "info", "messages[2]")


def test_one_request_says_what_its_next_turn_will_lose() -> None:
    line = agent(1, reasoning=True).sent()[2]
    (finding,) = lint([{"request": line["request"]}], chat_template=DROPS_REASONING)
    assert (finding.code, finding.tokens_lost) == ("PKV401", 0)
    assert lint([{"request": conversation("x" * 200)[3]["request"]}], chat_template=DROPS_REASONING) == []
