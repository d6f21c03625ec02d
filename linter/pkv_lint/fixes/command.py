"""What `--diff` and `--fix` do: show fixes, or write the files."""

from __future__ import annotations

from collections.abc import Callable

from pkv_lint.batch import Batch
from pkv_lint.command_line import complain, write
from pkv_lint.fixes.documents import Documents
from pkv_lint.fixes.fixing import Outcome, fixed
from pkv_lint.fixes.showing import diff, notes
from pkv_lint.output_file import write_bytes
from pkv_lint.prompt.streams import Source

Judge = Callable[[Callable[[str], Source]], Batch]
"""Lints the files, of which the callable gives what to read."""


def show(program: str, judge: Judge, stdin_name: str, *, unsafe: bool) -> tuple[Batch, bool]:
    """Print the fixes as a patch. Returns what would be found behind them, and whether there are any."""
    before = Documents(stdin_name)
    outcome = outcome_of(program, judge, before, unsafe=unsafe, made=False)
    patch = "".join(f"{line}\n" for line in diff(before, outcome.documents))
    write(patch.encode(errors="surrogateescape"))
    return outcome.batch, any(True for _ in outcome.documents.changed(before))


def make(program: str, judge: Judge, stdin_name: str, *, unsafe: bool, reads_stdin: bool) -> Batch:
    """Write the fixes into the files, and what was read from stdin to stdout. Returns what is found behind them."""
    before = Documents(stdin_name)
    outcome = outcome_of(program, judge, before, unsafe=unsafe, made=True)
    for name, _, document in outcome.documents.changed(before):
        if not (reads_stdin and name == stdin_name):
            write_bytes(name, [document.data])
    if reads_stdin and stdin_name in outcome.documents.files:
        write(outcome.documents.files[stdin_name].data)
    return outcome.batch


def outcome_of(program: str, judge: Judge, documents: Documents, *, unsafe: bool, made: bool) -> Outcome:
    """Find the fixes; says on stderr what each does to reuse."""
    outcome = fixed(lambda version: judge(version.source), documents, unsafe=unsafe)
    for line in notes(outcome, made=made):
        complain(program, line)
    return outcome
