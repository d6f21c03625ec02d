"""HOUSE001 on small traffic. Run with the package installed beside pkv-lint."""

from __future__ import annotations

from typing import Any

from pkv_lint import lint

SHARED = "\n".join(
    f"Rule {number}: keep to the manual of machine {number * 7}, page {number}." for number in range(120)
)


def session(name: str, system: str) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": f"What is rule {name}?"}]
    return {"session_id": name, "request": {"model": "m", "messages": messages}}


def found(*lines: dict[str, Any]) -> list[tuple[str, int | None, int]]:
    return [
        (finding.severity, finding.request, finding.requests_affected)
        for finding in lint(lines)
        if finding.code == "HOUSE001"
    ]


def turned(text: str) -> str:
    return "\n".join(reversed(text.split("\n")))


def test_sessions_that_begin_with_other_text() -> None:
    assert found(session("1", SHARED), session("2", turned(SHARED)), session("3", SHARED)) == [("warning", 1, 1)]


def test_sessions_that_begin_alike() -> None:
    assert found(session("1", SHARED), session("2", SHARED), session("3", SHARED)) == []


def test_short_prompts() -> None:
    assert found(session("1", "Be brief."), session("2", "Take your time.")) == []


def test_a_single_session() -> None:
    assert found(session("1", SHARED)) == []
