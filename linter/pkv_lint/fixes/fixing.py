"""Which fixes there are, and which of them are worth making: each is replayed, and kept where it raises reuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pkv_lint.batch import Batch
from pkv_lint.facts import Facts
from pkv_lint.fixes import cache_markers, call_texts, schema_keys, tool_set, tools_order, volatile_lines
from pkv_lint.fixes.documents import Documents, LineEdit
from pkv_lint.linting import Report

Lint = Callable[[Documents], Batch]
Result = Literal["kept", "no gain", "no saving", "refused", "nothing to do", "unsafe"]


@dataclass(frozen=True, slots=True)
class Fix:
    """`does` says what is done about findings of these `codes`. What is not `safe` changes what the model reads. What
    `keeps_prompts` as they are cannot raise reuse either: it is made where it does keep them."""

    does: str
    codes: frozenset[str]
    edits: Callable[[Facts], Iterator[LineEdit]]
    safe: bool = True
    keeps_prompts: bool = False


FIXES = (
    Fix("tools sorted by name", frozenset({"PKV201"}), tools_order.edits),
    Fix("keys of schemas sorted", frozenset({"PKV205"}), schema_keys.edits),
    Fix("calls and results written as at first", frozenset({"PKV303"}), call_texts.edits),
    Fix("cache markers taken out", frozenset({"PKV603"}), cache_markers.edits, keeps_prompts=True),
    Fix("the same tools in all requests of a conversation", frozenset({"PKV203"}), tool_set.edits, safe=False),
    Fix(
        "lines that change moved from the system message to the user's",
        frozenset({"PKV101", "PKV102", "PKV103", "PKV105"}),
        volatile_lines.edits,
        safe=False,
    ),
)


@dataclass(frozen=True, slots=True)
class Step:
    """What came of a fix for findings of these codes in these `files`: the `requests` that it changes, and the tokens
    reused `before` and `after` it, in the traffics that it was made in."""

    fix: Fix
    codes: tuple[str, ...]
    files: tuple[str, ...]
    result: Result
    requests: int = 0
    before: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The files with all fixes that were kept, and what is found in them then."""

    documents: Documents
    batch: Batch
    steps: tuple[Step, ...]


def fixed(lint: Lint, documents: Documents, *, unsafe: bool) -> Outcome:
    """Make fixes until none is worth it, so that a second run changes nothing."""
    batch = lint(documents)
    kept: list[Step] = []
    while True:
        left: list[Step] = []
        for fix in FIXES:
            found = [finding for report in batch.reports for finding in report.findings if finding.code in fix.codes]
            codes = tuple(sorted({finding.code for finding in found}))
            files = tuple(dict.fromkeys(finding.file for finding in found))
            if found and not (fix.safe or unsafe):
                possible = any(proposed(fix, report) for report in batch.reports)
                left.append(Step(fix, codes, files, "unsafe" if possible else "nothing to do"))
            elif found:
                outcome = attempt(Step(fix, codes, files, "nothing to do"), lint, documents, batch)
                documents, batch = outcome.documents, outcome.batch
                (kept if outcome.steps[0].result == "kept" else left).extend(outcome.steps)
                if outcome.steps[0].result == "kept":
                    break  # what was not worth it before may be now
        else:
            return Outcome(documents, batch, (*kept, *left))


def attempt(step: Step, lint: Lint, documents: Documents, batch: Batch) -> Outcome:
    """Make a fix in the traffics where it is worth it; `step` is what came of it where it can be made in none."""
    fix = step.fix
    edits = [proposed(fix, report) for report in batch.reports]
    wanted = [at for at, of_report in enumerate(edits) if of_report]
    if not wanted:
        return Outcome(documents, batch, (step,))
    new = documents.edited(edit for at in wanted for edit in edits[at])
    trial = lint(new)
    results = {at: judged(fix, batch.reports[at], trial.reports[at]) for at in wanted}
    good = [at for at in wanted if results[at] == "kept"]
    shown = good or wanted
    step = replace(
        step,
        result=results[shown[0]],
        requests=len({(at, line.index) for at in shown for line, _ in edits[at]}),
        before=sum(batch.reports[at].cached_tokens for at in shown),
        after=sum(trial.reports[at].cached_tokens for at in shown),
    )
    if not good:
        return Outcome(documents, batch, (step,))
    if good != wanted:
        new = documents.edited(edit for at in good for edit in edits[at])
        trial = lint(new)
    return Outcome(new, trial, (step,))


def proposed(fix: Fix, report: Report) -> list[LineEdit]:
    found = any(finding.code in fix.codes for finding in report.findings)
    return list(fix.edits(report.facts)) if found else []


def judged(fix: Fix, before: Report, after: Report) -> Result:
    """A fix is kept where more is reused and less computed, and where no request became one that the server would
    refuse."""
    old, new = before.facts, after.facts
    if len(new.replayed) != len(old.replayed):
        return "refused"
    if fix.keeps_prompts:
        same = all(was.ids == now.ids for was, now in zip(old.turns, new.turns, strict=True))
        return "kept" if same else "no gain"
    if after.cached_tokens <= before.cached_tokens:
        return "no gain"
    computed = old.prompt_tokens - before.cached_tokens, new.prompt_tokens - after.cached_tokens
    return "kept" if computed[1] < computed[0] else "no saving"
