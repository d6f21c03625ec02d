"""One line for each finding, as compilers write them: editors and scripts find the place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from pkv_lint.columns import visible
from pkv_lint.linting import Report, all_findings
from pkv_lint.outputs.text import COLOURS
from pkv_lint.outputs.wording import place, sentence


def lines(reports: Sequence[Report]) -> Iterator[str]:
    for _, finding in all_findings(reports):
        code = click.style(finding.code, fg=COLOURS[finding.severity], bold=True)
        yield f"{click.style(visible(place(finding)), bold=True)}: {code} {visible(sentence(finding))}"
