"""From the names on the command line to reports: files read, put together, each request given to its model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo

from pkv_lint.inputs import files_of
from pkv_lint.linting import Report, lint_traffic
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.streams import Source
from pkv_lint.prompt.traffic import TrafficLine, read_requests
from pkv_lint.rule_api import Rule

STDIN = "stdin"


@dataclass(frozen=True, slots=True)
class Batch:
    """`files` are those that were read, by the names that findings have; `failed` says what could not be."""

    reports: tuple[Report, ...]
    files: tuple[str, ...]
    failed: tuple[InputError, ...]

    @property
    def incomplete(self) -> bool:
        """Whether something could not be judged."""
        return bool(self.failed) or any(report.unusable for report in self.reports)


def lint_files(
    names: Sequence[str],
    rules: Sequence[Rule],
    renderer_of: Callable[[TrafficLine | None], Renderer],
    block_tokens: Callable[[Renderer], int],
    *,
    zone: tzinfo,
    now: datetime | None = None,
    together: bool = False,
    stdin_name: str = STDIN,
    source: Callable[[str], Source] | None = None,
) -> Batch:
    """Judge each file as a traffic of its own, or all together as one.

    `renderer_of` gives what renders a line (None: one that holds no request), `block_tokens` the block size to a
    renderer. Requests to different models share no cache: they are judged apart, but counted through. `now` stands in
    for times that are not recorded. `source` gives what is read for the name of a file (default: the file); it may
    raise InputError.
    """
    files: list[str] = []
    failed: list[InputError] = []
    for item in files_of(names):
        if isinstance(item, InputError):
            failed.append(item)
        else:
            files.append(item)

    def lines_of(group: Sequence[str]) -> Iterator[TrafficLine | InputError]:
        for file in group:
            try:
                given = source(file) if source is not None else file
                yield from read_requests(given, name=stdin_name if file == "-" else file, zone=zone)
            except InputError as error:
                if error.code:
                    yield error
                else:
                    failed.append(error)

    reports = [
        lint_traffic(lines, renderer, block_size=block_tokens(renderer), rules=rules, now=now)
        for group in ([files] if together and files else [[file] for file in files])
        for renderer, lines in by_renderer(numbered(lines_of(group)), renderer_of)
    ]
    unread = {error.file for error in failed}
    read = [stdin_name if file == "-" else file for file in files]
    return Batch(tuple(reports), tuple(file for file in read if file not in unread), tuple(failed))


def numbered(items: Iterable[TrafficLine | InputError]) -> Iterator[TrafficLine | InputError]:
    """The lines, counted over all files of a traffic."""
    for index, item in enumerate(items):
        yield item if isinstance(item, InputError) or item.index == index else replace(item, index=index)


def by_renderer(
    items: Iterable[TrafficLine | InputError], renderer_of: Callable[[TrafficLine | None], Renderer]
) -> list[tuple[Renderer, list[TrafficLine | InputError]]]:
    """The lines of each renderer, in their order; what holds no request goes with the first."""
    parts: dict[Renderer, list[TrafficLine | InputError]] = {}
    loose: list[TrafficLine | InputError] = []
    for item in items:
        if isinstance(item, InputError):
            loose.append(item)
        else:
            parts.setdefault(renderer_of(item), []).append(item)
    first = next(iter(parts), None) or renderer_of(None)
    parts[first] = loose + parts.get(first, [])
    return list(parts.items())
