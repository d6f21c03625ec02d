"""PKV404: replies that come back as other tokens than were generated."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .agents import Run, agent, chat, prose
from .conversations import Line, Message, codes, lint, loud, renderer
from .habits import KEEPS_REASONING, PLAIN, TRIMS
from .test_pkv401 import generated
from .test_pkv403 import HYBRID


def written(change: Callable[[str], str]) -> Callable[[Message], str]:
    """A reply that differs from what was generated."""
    return lambda message: change(message["content"]) + "<|im_end|>"


def spaced_call(message: Message) -> str:
    """Calls with other white space than the template gives them."""
    return generated(message).replace('": ', '":').replace(", ", ",")


def with_ids(lines: list[Line], change: Callable[[str], str] = str) -> list[Line]:
    """The same with generated ids instead of text, the end of the turn among them."""
    encode = renderer(PLAIN).encode_completion
    return [
        {
            **{k: v for k, v in line.items() if k != "completion"},
            "output_token_ids": list(encode(change(line["completion"]))),
        }
        if "completion" in line
        else line
        for line in lines
    ]


LONG = chat(4)
FOUND: dict[str, tuple[list[Line], str, str]] = {
    "trimmed by the client": (LONG.sent(completions=written(lambda t: "\n" + t)), PLAIN, "client"),
    "shortened by the client": (
        LONG.sent(completions=written(lambda t: t[:80] + " more" + t[80:])),
        PLAIN,
        "client",
    ),
    "another text": (LONG.sent(completions=written(lambda t: t.upper())), PLAIN, "client"),
    "quotes made straight": (LONG.sent(completions=written(lambda t: "“" + t)), PLAIN, "client"),
    "a list without its markers": (
        LONG.sent(completions=written(lambda t: "- " + t.replace(" ", "\n- "))),
        PLAIN,
        "client",
    ),
    "calls written another way": (agent(2).sent(completions=spaced_call), PLAIN, "template"),
    "without sessions": (LONG.sent(completions=written(lambda t: "\n" + t), session=None), PLAIN, "client"),
    "trimmed by the template": (
        chat(4).sent(
            lambda m, t: [{**x, "content": "  " + x["content"]} if x["role"] == "assistant" else x for x in m],
            completions=written(lambda t: "  " + t),
        ),
        TRIMS,
        "template",
    ),
    "ids that spell the text another way": (
        with_ids(LONG.sent(completions=written(str)), lambda text: text.replace(" ", "  ", 1)),
        PLAIN,
        "template",
    ),
    "forty turns in": (chat(42).sent(completions=written(lambda t: "\n" + t))[39:], PLAIN, "client"),
    "thoughts that are printed another way": (
        agent(1, 2, reasoning=True).sent(completions=lambda m: generated(m).replace("<think>\n", "<think>\n\n\n")),
        KEEPS_REASONING,
        "template",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_reply_in_other_tokens_is_a_note(name: str) -> None:
    lines, template, blame = FOUND[name]
    (finding,) = lint(lines, chat_template=template)
    assert (finding.code, finding.severity, finding.blame) == ("PKV404", "info", blame), finding
    assert finding.tokens_lost > 0


@pytest.mark.parametrize("name", FOUND)
def test_hybrid_models_are_warned(name: str) -> None:
    lines, template, _ = FOUND[name]
    assert codes(lint(lines, chat_template=template, vllm_args=HYBRID)) == ["PKV404"]


SILENT: dict[str, tuple[list[Line], str | None]] = {
    "as it was generated": (LONG.sent(completions=generated), PLAIN),
    "without the end of the turn": (LONG.sent(completions=lambda m: m["content"]), PLAIN),
    "as ids": (with_ids(LONG.sent(completions=generated)), PLAIN),
    "calls": (agent(2).sent(completions=generated), PLAIN),
    "the built-in layout says nothing": (LONG.sent(completions=written(lambda t: "\n" + t)), None),
    "nothing is known of what was generated": (LONG.sent(), PLAIN),
    "an empty completion": (LONG.sent(completions=lambda m: ""), PLAIN),
    "only the end of the turn is missing": (LONG.sent(completions=lambda m: m["content"][:-1]), PLAIN),
    "the last reply, which nobody goes on with": (chat(1).sent(completions=written(str.upper)) * 2, PLAIN),
    "of two samples, the other one": (
        [
            request
            for line in LONG.sent(completions=generated)
            for request in (line, {**line, **({"completion": prose("x")} if "completion" in line else {})})
        ],
        PLAIN,
    ),
    "another session with another answer": (
        [
            *chat(3).sent(session="a", completions=generated),
            *Run([chat(1).messages[0], *chat(2, topic="b").messages[1:]], [1, 3]).sent(session="b"),
        ],
        PLAIN,
    ),
    "thoughts as they were generated": (agent(2, reasoning=True).sent(completions=generated), KEEPS_REASONING),
}


@pytest.mark.parametrize("settings", [None, HYBRID], ids=["attention", "hybrid"])
@pytest.mark.parametrize("name", SILENT)
def test_replies_that_stay_are_left_alone(name: str, settings: str | None) -> None:
    lines, template = SILENT[name]
    found = lint(lines, chat_template=template, vllm_args=settings if template else None)
    assert loud(found) == []
    assert [finding for finding in found if finding.code == "PKV404"] == []


def test_both_texts_are_shown() -> None:
    (finding,) = lint(FOUND["another text"][0], chat_template=PLAIN)
    text = LONG.messages[1]["content"]
    assert (finding.evidence["before"], finding.evidence["after"]) == (text.upper() + "<|im_end|>", text)
