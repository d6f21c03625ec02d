"""Findings that are known and put off: a committed file of their numbers, by file and code."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pkv_lint.findings import Finding
from pkv_lint.linting import Report
from pkv_lint.prompt.errors import InputError

VERSION = 1

Key = tuple[str, str]
"""A file, by its path from the baseline's folder with `/` between names, and a code."""
Takes = Callable[[str], bool]
"""Whether a code was looked for."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """How many findings of each code each file may have. Numbers and not places: those move with every edit."""

    file: Path
    counts: Mapping[Key, int]

    @classmethod
    def read(cls, file: Path) -> Baseline:
        """Raises InputError where there is none, and for what is no baseline."""
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError("no such baseline; --update-baseline writes it", file=str(file)) from None
        except OSError as error:
            raise InputError(f"cannot be read: {(error.strerror or str(error)).lower()}", file=str(file)) from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"is no baseline: {' '.join(str(error).split())}", file=str(file)) from None
        return cls(file, counts_in(document, str(file)))

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def key(self, finding: Finding) -> Key:
        return entry(finding.file, self.file), finding.code

    def found(self, reports: Iterable[Report]) -> Counter[Key]:
        return Counter(self.key(finding) for report in reports for finding in report.findings)

    def hide(self, reports: Sequence[Report]) -> list[Report]:
        """The reports without what the baseline allows. Where a file has more findings of a code than that, all of
        them stay: the numbers do not tell which one is new."""
        found = self.found(reports)

        def is_new(finding: Finding) -> bool:
            key = self.key(finding)
            return found[key] > self.counts.get(key, 0)

        return [replace(report, findings=tuple(filter(is_new, report.findings))) for report in reports]

    def gone(self, reports: Sequence[Report], files: Iterable[str], takes: Takes) -> int:
        """How many findings the baseline allows in the files, of codes that were looked for, that do not occur any
        more."""
        found = self.found(reports)
        judged = {entry(file, self.file) for file in files}
        return sum(
            max(0, count - found[file, code])
            for (file, code), count in self.counts.items()
            if file in judged and takes(code)
        )

    def updated(self, reports: Sequence[Report], files: Iterable[str], takes: Takes) -> Baseline:
        """With what the reports say of the files. Other files keep their entries while they exist, and codes that were
        not looked for keep theirs."""
        judged = {entry(file, self.file) for file in files}
        kept = {
            (file, code): count
            for (file, code), count in self.counts.items()
            if not (takes(code) if file in judged else not (self.file.parent / file).exists())
        }
        found = self.found(reports)
        return Baseline(self.file, kept | dict(found))

    def dumps(self) -> str:
        files: dict[str, dict[str, int]] = {}
        for (file, code), count in sorted(self.counts.items()):
            files.setdefault(file, {})[code] = count
        return json.dumps({"version": VERSION, "files": files}, ensure_ascii=False, indent=2) + "\n"


def entry(file: str, baseline: Path) -> str:
    """How the baseline names a file, wherever the command is run."""
    return Path(os.path.relpath(file, baseline.parent)).as_posix()


def counts_in(document: Any, name: str) -> Mapping[Key, int]:
    files = document.get("files") if isinstance(document, dict) else None
    if not isinstance(files, dict) or document.get("version") != VERSION:
        raise InputError(f'is no baseline: needs {{"version": {VERSION}, "files": {{...}}}}', file=name)
    counts: dict[Key, int] = {}
    for file, codes in files.items():
        path = f"files[{json.dumps(file)}]"
        if not isinstance(codes, dict):
            raise InputError("needs numbers of findings by code", file=name, path=path)
        for code, count in codes.items():
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise InputError("needs a number of findings", file=name, path=f"{path}.{code}")
            counts[file, code] = count
    return counts
