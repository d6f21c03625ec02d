"""What the linter says about one cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]
Blame = Literal["client", "template", "engine", "input"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause, with every request it hits.

    `request` is the 0-based index of the first one, `path` a JSON path in its body (None: no place in the body), `span`
    the code points `[start, end)` of the decoded string there, `line` and `column` the 1-based place in `file` (0 when
    there is none). `tokens_lost` are prompt tokens in full blocks that would have been reused without this cause,
    summed over the `requests_affected`. `evidence` holds what was seen (both versions, the break in tokens and blocks),
    `fix` what to do.
    """

    code: str
    name: str
    severity: Severity
    message: str
    file: str
    line: int
    column: int
    request: int | None
    path: str | None
    span: tuple[int, int] | None
    requests_affected: int
    tokens_lost: int
    blame: Blame
    evidence: Mapping[str, Any] = field(default_factory=dict)
    fix: str = ""

    def at_least(self, severity: Severity) -> bool:
        return SEVERITIES.index(self.severity) <= SEVERITIES.index(severity)

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Worst first, then by cost and place."""
        return (SEVERITIES.index(self.severity), -self.tokens_lost, self.line, self.code)


def nth(index: int) -> str:
    """A 0-based index as a person counts: `1st`, `2nd`. A bare number would leave open where counting begins."""
    number = index + 1
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def counted(number: int, noun: str) -> str:
    """`1 error`, `2 errors`; `info` has no plural."""
    return f"{number:,} {noun}" + ("" if number == 1 or noun == "info" else "s")
