"""Characters, tokens and origins of one prompt."""

from __future__ import annotations

from array import array

import pytest

from pkv_lint.prompt.origin import COMPUTED, Origin, Source
from pkv_lint.prompt.prompt import Prompt
from pkv_lint.prompt.renderer import Renderer

TEMPLATE = Source("template", "line 1")
CONTENT = Source("value", "messages[0].content")
ORIGINS = (Origin(0, 3, TEMPLATE, linear=False), Origin(3, 8, CONTENT, 10), Origin(8, 9, TEMPLATE, linear=False))
SPANS = [(0, 0), (0, 3), (3, 5), (5, 9)]


def prompt() -> Prompt:
    return Prompt("<u>hello>", array("i", [9, 1, 2, 3]), trace=lambda: ORIGINS, offsets=lambda: list(SPANS))


def test_the_origin_of_a_character() -> None:
    assert prompt().origin(0) == Origin(0, 1, TEMPLATE, linear=False)
    assert prompt().origin(3) == Origin(3, 4, CONTENT, 10)
    assert prompt().origin(7) == Origin(7, 8, CONTENT, 14)
    assert prompt().origin(8) == Origin(8, 9, TEMPLATE, linear=False)


@pytest.mark.parametrize("char", [-1, 9, 100])
def test_characters_outside(char: int) -> None:
    with pytest.raises(IndexError):
        prompt().origin(char)


def test_the_origins_of_a_token() -> None:
    assert prompt().token_origin(0) == ()  # an added token stands for no text
    assert prompt().token_origin(1) == (Origin(0, 3, TEMPLATE, linear=False),)
    assert prompt().token_origin(3) == (Origin(5, 8, CONTENT, 12), Origin(8, 9, TEMPLATE, linear=False))
    with pytest.raises(IndexError):
        prompt().token_origin(4)


def test_the_origins_between_two_characters() -> None:
    assert prompt().origins_between(0, 9) == ORIGINS
    assert prompt().origins_between(2, 4) == (Origin(2, 3, TEMPLATE, linear=False), Origin(3, 4, CONTENT, 10))
    assert prompt().origins_between(4, 4) == ()


def test_origins_and_spans_are_worked_out_once_and_only_on_demand() -> None:
    calls: list[str] = []

    def trace() -> tuple[Origin, ...]:
        calls.append("trace")
        return ORIGINS

    def offsets() -> list[tuple[int, int]]:
        calls.append("offsets")
        return list(SPANS)

    traced = Prompt("<u>hello>", array("i", [9, 1, 2, 3]), trace=trace, offsets=offsets)
    assert calls == []
    assert traced.origin(0) and traced.origin(4) and traced.token_spans and traced.token_origin(2)
    assert sorted(calls) == ["offsets", "trace"]


def test_a_prompt_without_text() -> None:
    ids = Prompt(None, array("i", [5, 6]))
    assert ids.origins == ()
    assert ids.token_spans == [(0, 0), (0, 0)]
    assert ids.token_origin(1) == ()


def test_text_without_a_trace_is_computed() -> None:
    assert Prompt("ab", array("i", [1])).origins == (Origin(0, 2, COMPUTED, linear=False),)
    assert Prompt("", array("i")).origins == ()


def test_paths_of_origins() -> None:
    assert Origin(0, 1, CONTENT).path == "messages[0].content"
    assert Origin(0, 1, Source("key", "tools[0].x")).path == "tools[0].x"
    assert Origin(0, 1, Source("syntax", "tools[0]")).path == "tools[0]"
    assert Origin(0, 1, TEMPLATE).path is None
    assert Origin(0, 1, COMPUTED).path is None


def test_what_a_renderer_gives_hangs_together() -> None:
    body = {"messages": [{"role": "user", "content": "one two"}], "truncate_prompt_tokens": 5}
    made = Renderer.load().render(body)
    assert made.text is not None
    assert len(made.token_spans) == len(made.token_ids) == 5
    assert made.token_spans[-1][1] == len(made.text)
    assert [origin.start for origin in made.origins[1:]] == [origin.end for origin in made.origins[:-1]]
    assert made.origins[-1].end == len(made.text)
    start = made.text.index("two")
    assert made.origin(start) == Origin(start, start + 1, CONTENT, 4)
