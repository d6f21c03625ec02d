"""The page: complete, self-contained, and nothing of a prompt is markup."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.html_pages import Page, needs_chromium, opened
from tests.outputs.traffic import SYSTEM, clocked, report, request

from pkv_lint.linting import Report
from pkv_lint.outputs import html
from pkv_lint.outputs.wording import costs

EVIL = (
    "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>'\"&amp;{{ 17*43 }}\x1b[31m\x00\u202e"
)


def page(*reports: Report) -> tuple[Page, str]:
    source = "\n".join(html.lines(reports))
    return Page(source), source


def test_one_request() -> None:
    found, _ = page(report(clocked(1)))
    assert "1 finding in a prompt of" in found.text
    assert len(found.of("article", "warning")) == 1
    assert not found.of("svg") and not found.of("a")
    assert len(found.of("mark")) >= 1


def test_a_traffic() -> None:
    whole = report(clocked(1), clocked(2), "not json", clocked(3))
    found, source = page(whole)
    assert re.search(r"\d+% of the prompt tokens are reused; \d+% could be", found.text)
    assert len(found.of("article", "error")) == 2  # a line that is not JSON as well
    assert len(found.of("a", "row")) == 2 and len(found.of("div", "row")) == 2  # with the head of the table
    marked = "".join(re.findall(r"<mark>([^<]*)</mark>", source))
    assert marked == "2026-11-29 14:05:02"
    assert len(re.findall('<b title="the prefix breaks here"></b>', source)) == 1
    # Links lead to findings that are there.
    targets = {f"#{own['id']}" for own in found.of("article")}
    assert {own["href"] for own in found.of("a")} <= targets


def sliding() -> Report:
    """A history that drops its oldest messages: with them the prompts would be longer."""
    head = {"role": "system", "content": SYSTEM}
    said = [
        {"role": role, "content": f"{role} {word} " * (30 - 3 * number)}
        for number, word in enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight"))
        for role in ("user", "assistant")
    ]
    windows = [{"messages": [head, *said[max(0, end - 7) : end]]} for end in range(1, 16, 2)]
    return report(*({"session_id": "s", "request": window} for window in windows))


@pytest.mark.parametrize(
    "whole",
    [
        report(clocked(1), clocked(2), clocked(3), request(tools=[{"type": "function", "function": {"name": "f"}}])),
        sliding(),
    ],
    ids=["clock", "window"],
)
def test_strips_account_for_every_token(whole: Report) -> None:
    assert whole.findings
    for replayed in whole.facts.replayed:
        runs = list(html.strip(replayed, whole.facts.block_size))
        assert sum(run.tokens for run in runs) == len(replayed.turn.ids)
        assert sum(run.blocks for run in runs) == -(-len(replayed.turn.ids) // whole.facts.block_size)
        assert sum(run.tokens for run in runs if run.state == "reused") == replayed.hit


def test_more_is_reused_than_the_prompt_has_only_in_a_longer_one() -> None:
    whole = sliding()
    (finding,) = whole.findings
    assert finding.evidence["hit_without"] > finding.evidence["prompt_tokens"]
    assert next(costs(whole, finding)).endswith("without the break, in a longer prompt.")


def test_the_text_of_the_prompt_is_all_there() -> None:
    whole = report(clocked(1), clocked(2))
    (item,) = [html.item(1, whole, finding) for finding in whole.findings]
    text = "".join(piece.text for part in item.stretches for block in part.blocks for piece in block.pieces)
    assert text == whole.facts.turns[1].prompt.text


def test_it_needs_nothing_else() -> None:
    found, source = page(report(clocked(1), clocked(2)))
    assert not found.of("script") and not found.of("link") and not found.of("img")
    assert "http://" not in source and "https://" not in source and "url(" not in source and "@import" not in source
    policy = next(own["content"] for own in found.of("meta") if own.get("http-equiv"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert "prefers-color-scheme: dark" in source


def evil(run: str) -> dict[str, Any]:
    return {"session_id": EVIL, "request": request(f"{EVIL} {run} {SYSTEM}", **{EVIL: EVIL})}


def test_nothing_of_a_request_is_markup() -> None:
    found, source = page(report(evil("alpha"), evil("beta"), {"messages": EVIL}, name=f"{EVIL}.jsonl"))
    assert not found.of("script") and not found.of("img")
    assert not set(source) & {"\x1b", "\x00", "\u202e"}
    assert "document.title='owned'" in found.text and "{{ 17*43 }}" in found.text and "731" not in found.text


def test_long_prompts_are_cut_and_many_requests_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "WHOLE", 20)
    monkeypatch.setattr(html, "BARS", 3)
    monkeypatch.setattr(html, "ROWS", 4)
    whole = report(
        *(request(f"run {n} " + SYSTEM * 12, user=str(n)) for n in ("alpha", "beta", "gamma", "delta", "pi"))
    )
    found, source = page(whole)
    assert len(found.of("rect")) <= 9 and "1st to 2nd request" in source
    assert "The 4 requests that lost most" in found.text
    assert len(found.of("div", "gap")) == 1 and not found.of("details")


def test_prompts_without_text() -> None:
    tokens = [*range(200)]
    found, _ = page(report({"token_ids": tokens}, {"token_ids": [9, *tokens]}))
    assert len(found.of("div", "prompt")) == 0
    assert len(found.of("span", "strip")) == 2


@pytest.mark.slow
@needs_chromium
def test_in_a_browser(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(report(evil("alpha"), evil("beta")))[1], encoding="utf-8")
    document, console = opened(path)
    assert not console
    assert "<title>pkv-lint" in document and "<article" in document
