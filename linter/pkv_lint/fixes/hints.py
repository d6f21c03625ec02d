"""Which findings `--fix` may mend: said beside them, so that nobody has to try."""

from __future__ import annotations

from collections.abc import Mapping

from pkv_lint.fixes.fixing import FIXES, proposed
from pkv_lint.inputs import PACKED
from pkv_lint.linting import Report


def fix_options(report: Report) -> Mapping[int, str]:
    """The option that allows to fix a finding, by its place in the report. There are edits for each of these; what
    they are worth only a replay can tell, which is too dear for every run."""
    options: dict[int, str] = {}
    for fix in FIXES:
        requests = {line.index for line, _ in proposed(fix, report)}
        for at, finding in enumerate(report.findings):
            if finding.code in fix.codes and finding.request in requests and not finding.file.endswith(PACKED):
                options[at] = "--fix" if fix.safe else "--unsafe-fixes"
    return options
