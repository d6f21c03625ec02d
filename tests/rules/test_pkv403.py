"""PKV403: a generation prompt that the history does not repeat."""

from __future__ import annotations

import pytest

from .agents import Run, agent, assistant, chat, prose, user
from .conversations import Line, codes, conversation, lint, loud
from .habits import DROPS_REASONING, EMPTY_THOUGHT, KEEPS_REASONING, OPENS_WITH_EMPTY_THOUGHT, PLAIN, template
from .test_pkv401 import generated

HYBRID = """--hf-overrides '{"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}'"""
LONG = OPENS_WITH_EMPTY_THOUGHT.replace("\\n\\n</think>", "\\nI answer at once, without thinking about it.\\n</think>")
CHANNEL = template(
    opening="{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<channel>final</channel>\\n' }}{% endif -%}"
)
SWITCHED = template(
    opening="{%- if add_generation_prompt %}{{ "
    + EMPTY_THOUGHT
    + " if enable_thinking is false else '<|im_start|>assistant\\n' }}{% endif -%}"
)
OTHER_ROLE = template(opening="{%- if add_generation_prompt %}{{ '<|im_start|>model of the firm\\n' }}{% endif -%}")
OFF = {"chat_template_kwargs": {"enable_thinking": False}}

FOUND: dict[str, tuple[list[Line], str]] = {
    "an empty thought": (chat(24).sent(), OPENS_WITH_EMPTY_THOUGHT),
    "with completions": (chat(5).sent(completions=generated), OPENS_WITH_EMPTY_THOUGHT),
    "calls of tools": (agent(2).sent(), OPENS_WITH_EMPTY_THOUGHT),
    "without sessions": (chat(5).sent(session=None, completions=generated), OPENS_WITH_EMPTY_THOUGHT),
    "thinking switched off": (chat(5).sent(completions=generated, **OFF), SWITCHED),
    "a longer thought": (chat(5).sent(), LONG),
    "a channel": (chat(5).sent(), CHANNEL),
    "another name of the role": (chat(5).sent(completions=generated), OTHER_ROLE),
    "forty turns in": (chat(42).sent()[39:], LONG),
    "without a system prompt": (chat(5).sent(system=""), LONG),
}


@pytest.mark.parametrize("name", FOUND)
def test_an_opening_that_is_not_repeated_is_a_note(name: str) -> None:
    lines, chat_template = FOUND[name]
    found = lint(lines, chat_template=chat_template)
    assert {(finding.code, finding.severity, finding.blame) for finding in found} == {("PKV403", "info", "template")}
    assert found[0].tokens_lost > 0


@pytest.mark.parametrize("name", FOUND)
def test_hybrid_models_are_warned(name: str) -> None:
    lines, chat_template = FOUND[name]
    assert codes(lint(lines, chat_template=chat_template, vllm_args=HYBRID)) == ["PKV403"]


SILENT: dict[str, tuple[list[Line], str | None]] = {
    "an opening that is repeated": (chat(5).sent(), PLAIN),
    "the built-in layout": (chat(5).sent(), None),
    "a template that keeps reasoning": (agent(2, reasoning=True).sent(completions=generated), KEEPS_REASONING),
    "thinking left on": (chat(5).sent(), SWITCHED),
    "no opening at all": (chat(5).sent(add_generation_prompt=False), OPENS_WITH_EMPTY_THOUGHT),
    "the same request again": (chat(1).sent() * 3, OPENS_WITH_EMPTY_THOUGHT),
    "another question instead": (
        [*chat(3).sent()[2:], *Run([*chat(3).messages[:4], user(prose("other"))], [5]).sent()],
        OPENS_WITH_EMPTY_THOUGHT,
    ),
    "another question behind the first": (
        [*chat(1).sent(), *Run([*chat(1).messages[:1], user(prose("and"))], [2]).sent()],
        OPENS_WITH_EMPTY_THOUGHT,
    ),
    "another session": (
        [line for n in range(4) for line in chat(1, topic=str(n)).sent(session=str(n))],
        OPENS_WITH_EMPTY_THOUGHT,
    ),
    "a thought that was generated": (
        agent(1, 3, reasoning=True).sent(completions=generated),
        DROPS_REASONING,
    ),
    "an answer that is continued": (
        Run([user(prose(1)), assistant(prose(2)[:40])], [2]).sent(
            add_generation_prompt=False, continue_final_message=True
        ),
        OPENS_WITH_EMPTY_THOUGHT,
    ),
}


@pytest.mark.parametrize("settings", [None, HYBRID], ids=["attention", "hybrid"])
@pytest.mark.parametrize("name", SILENT)
def test_openings_that_stay_are_left_alone(name: str, settings: str | None) -> None:
    lines, chat_template = SILENT[name]
    found = lint(lines, chat_template=chat_template, vllm_args=settings if chat_template else None)
    assert [finding for finding in found if finding.code == "PKV403" and finding.tokens_lost] == []
    assert loud(found) == []


def test_one_request_says_what_its_next_turn_will_show() -> None:
    line = conversation("You are Tern. " + prose("system"))[2]
    (finding,) = lint([{"request": line["request"]}], chat_template=OPENS_WITH_EMPTY_THOUGHT)
    assert (finding.code, finding.severity) == ("PKV403", "info")
