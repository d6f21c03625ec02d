"""What fixes did, for a person: a unified diff, and a line for each fix."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from difflib import unified_diff

from pkv_lint.findings import counted
from pkv_lint.fixes.documents import Documents
from pkv_lint.fixes.fixing import Outcome, Step

NAMED = 3
"""Files that a line names; of more, it counts the others."""
ESCAPES = {octet: f"\\{octet:03o}" for octet in (*range(32), *range(127, 256))} | {ord('"'): '\\"', ord("\\"): "\\\\"}
"""How a quoted name in a patch writes bytes that cannot stand for themselves."""


def diff(before: Documents, after: Documents) -> Iterator[str]:
    """The lines of a patch (`patch -p0`), without their line ends."""
    for name, old, new in after.changed(before):
        file = in_patch(name)
        for number, line in enumerate(unified_diff(old.lines, new.lines, file, file, lineterm="")):
            yield line.removesuffix("\n")
            if number > 1 and not line.startswith("@@") and not line.endswith("\n"):
                yield "\\ No newline at end of file"


def in_patch(file: str) -> str:
    """A file name as `patch` and git take it: from the working directory, without steps upwards where it is below. They
    expect a tab behind a name with a space, and quotes and escapes where something could end the line or a quote."""
    relative = os.path.relpath(file)
    name = file if relative.startswith(os.pardir) else relative
    if any(character in name for character in '"\\') or not name.isprintable():
        octets = os.fsencode(name)
        return '"' + "".join(ESCAPES.get(octet) or chr(octet) for octet in octets) + '"'
    return f"{name}\t" if " " in name else name


def notes(outcome: Outcome, *, made: bool) -> Iterator[str]:
    """A line for each fix: what it raises reuse to, or why it is not made. `made`: the files are written."""
    about = "about " if any(report.facts.approximate for report in outcome.batch.reports) else ""
    for step in outcome.steps:
        done = ("fixed" if made else "can be fixed") if step.result == "kept" else "not fixed"
        yield f"{', '.join(step.codes)} {done} ({step.fix.does}): {result(step, about)}"


def result(step: Step, about: str) -> str:
    reused = f"{about}{step.before:,} tokens reused before, {step.after:,} after"
    match step.result:
        case "unsafe":
            return "changes what the model reads, so only with --unsafe-fixes"
        case "nothing to do":
            return f"not possible in {some(step.files)}"
        case "refused":
            return "the server would refuse a request then"
        case "no saving":
            return f"would make prompts longer by more than it saves ({reused})"
        case "no gain":
            return "would change prompts" if step.fix.keeps_prompts else f"would not raise reuse ({reused})"
        case "kept":
            in_requests = f"in {counted(step.requests, 'request')}"
            return f"{in_requests}, no prompt changes" if step.fix.keeps_prompts else f"{in_requests}, {reused}"


def some(files: Sequence[str]) -> str:
    """The first names of many."""
    rest = f" and {counted(len(files) - NAMED, 'other file')}" if len(files) > NAMED else ""
    return ", ".join(files[:NAMED]) + rest
