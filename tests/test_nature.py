"""What kind of fault a change is."""

from __future__ import annotations

import pytest

from pkv_lint.changes import Change, head_changes
from pkv_lint.nature import about_tokens, is_context, located, only_values, ticks


def change(before: str, after: str) -> tuple[Change, dict[str, object]]:
    """The first change of a system prompt, and the later body."""
    bodies = [
        {"messages": [{"role": "system", "content": text}, {"role": "user", "content": "Hi"}]}
        for text in (before, after)
    ]
    return next(iter(head_changes(*bodies))), bodies[1]


@pytest.mark.parametrize(
    ("before", "after", "timestamp", "identifier"),
    [
        ("At 14:05 now", "At 14:06 now", True, False),
        ("Today is Monday.", "Today is Tuesday.", True, False),
        ("On 2026-11-29.", "On 2026-11-30.", True, False),
        ("Born 1984-03-02.", "Born 1971-06-14.", False, False),
        ("n=1795961133", "n=1795961230", True, False),
        ("no 1795961133", "no 1500000001", False, False),
        ("time 1795961133", "time 1500000001", True, False),
        ("session=af01", "session=bb", False, False),
        ("session=af01", "session=bcde", False, True),
        ("rid 9f3a", "rid 8812", False, True),
        ("Step 12", "Step 13", False, False),
        ("run_8f3k2x91", "run_1a2b3c4d", False, True),
        ("See 14:05 and go", "See you and go", False, False),
    ],
)
def test_only_values(before: str, after: str, timestamp: bool, identifier: bool) -> None:
    found, body = change(before, after)
    assert only_values(found, body, "timestamp") is timestamp
    assert only_values(found, body, "identifier") is identifier


@pytest.mark.parametrize(
    ("before", "after", "ahead", "expected"),
    [
        ("2026-11-29 14:05", "2026-11-29 14:06", "", True),
        ("2026-11-29 14:05", "2026-11-29 09:06", "", True),  # another time zone
        ("2026-11-29 14:05", "2026-10-02 14:05", "", False),
        ("14:05", "09:12", "", True),
        ("2026-11-29", "2026-11-28", "", False),
        ("2026-11-29", "2029-11-29", "", False),
        ("1795961133", "1795961133000", "", True),
        ("1795961133", "1600000000", "last_seen_at=", True),
        ("1795961133", "1600000000", "order ", False),
    ],
)
def test_a_clock_goes_forward(before: str, after: str, ahead: str, expected: bool) -> None:
    assert ticks(before, after, ahead) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- one\n- two\n", True),
        ("- one\n", False),
        ("word " * 20, True),
        ("word " * 8, False),
        ("泵阀盖油灯线轮轴钉板管壳漆胶布纸石木铁铜银金", True),
        ("泵阀盖油灯", False),
        ("", False),
    ],
)
def test_context_is_two_lines_or_twenty_tokens(text: str, expected: bool) -> None:
    assert is_context(Change("text", "messages[0].content", "", text)) is expected
    assert about_tokens(text) >= 0


def test_the_whole_value_is_pointed_at() -> None:
    found, body = change("At 2026-11-29 14:05:33 UTC now", "At 2026-11-29 14:05:34 UTC now")
    assert located(found, body, "timestamp") == (3, 26)
    assert located(found, body, "volatile") == found.span
