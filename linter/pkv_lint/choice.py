"""Which findings the user wants to see, and how severe they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pkv_lint.findings import Finding, Severity
from pkv_lint.linting import Report
from pkv_lint.prompt.errors import InputError


@dataclass(frozen=True, slots=True)
class Choice:
    """Codes or beginnings of codes: `select` (None: all of them), `ignore`, and severities other than the rules' own;
    of several beginnings the longest counts."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    severities: Mapping[str, Severity] = field(default_factory=dict)

    def takes(self, code: str) -> bool:
        return (self.select is None or code.startswith(self.select)) and not self.ignores(code)

    def ignores(self, code: str) -> bool:
        """What could not be judged is not a matter of `select`: it has to be ignored by name."""
        return code.startswith(self.ignore)

    def of(self, report: Report) -> Report:
        """The report as the user wants to see it."""
        findings = sorted(self.graded(report.findings), key=lambda finding: finding.order)
        unusable = (finding for finding in report.unusable if not self.ignores(finding.code))
        return replace(report, findings=tuple(findings), unusable=tuple(unusable))

    def graded(self, findings: Iterable[Finding]) -> Iterable[Finding]:
        for finding in findings:
            if self.takes(finding.code):
                stated = max((code for code in self.severities if finding.code.startswith(code)), key=len, default=None)
                yield replace(finding, severity=self.severities[stated]) if stated is not None else finding


def codes_in(text: str, where: str, known: Sequence[str]) -> tuple[str, ...]:
    """The comma-separated codes or beginnings of codes that the user gave at `where`. Raises InputError for what names
    none of the known ones."""
    prefixes = tuple(part.strip().upper() for part in text.split(",") if part.strip())
    if not prefixes:
        raise InputError(f"{where} names no code")
    for prefix in prefixes:
        check_code(prefix, where, known)
    return prefixes


def check_code(prefix: str, where: str, known: Sequence[str]) -> None:
    if not prefix or not any(code.startswith(prefix) for code in known):
        raise InputError(f"no rule has the code {prefix} ({where}; see --list-rules)")
