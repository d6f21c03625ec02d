"""What fixes did, for a person: a unified diff, and a line for each fix."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff

from pkv_lint.findings import counted
from pkv_lint.fixes.documents import Documents
from pkv_lint.fixes.fixing import Outcome, Step


def diff(before: Documents, after: Documents) -> Iterator[str]:
    """The lines of a patch (`patch -p0`), without their line ends."""
    for name, old, new in after.changed(before):
        for number, line in enumerate(unified_diff(old.lines, new.lines, name, name, lineterm="")):
            yield line.removesuffix("\n")
            if number > 1 and not line.startswith("@@") and not line.endswith("\n"):
                yield "\\ No newline at end of file"


def notes(outcome: Outcome, *, made: bool) -> Iterator[str]:
    """A line for each fix: what it raises reuse to, or why it is not made. `made`: the files are written."""
    about = "about " if any(report.facts.approximate for report in outcome.batch.reports) else ""
    for step in outcome.steps:
        done = ("fixed" if made else "can be fixed") if step.result == "kept" else "not fixed"
        yield f"{', '.join(step.codes)} {done} ({step.fix.does}): {result(step, about)}"


def result(step: Step, about: str) -> str:
    if step.result == "unsafe":
        return "changes what the model reads, so only with --unsafe-fixes"
    if step.result == "nothing to do":
        return "not possible here"
    reused = f"{about}{step.before:,} tokens reused before, {step.after:,} after"
    if step.result == "no gain":
        return f"would not raise reuse ({reused})"
    in_requests = f"in {counted(step.requests, 'request')}"
    return f"{in_requests}, no prompt changes" if step.fix.keeps_prompts else f"{in_requests}, {reused}"
