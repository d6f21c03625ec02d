"""Findings as one self-contained page: prompts as strips of blocks, what was reused and what was lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

from pkv_lint.causes import Replayed
from pkv_lint.columns import visible
from pkv_lint.findings import SEVERITIES, Finding, counted, nth
from pkv_lint.linting import Report, all_findings
from pkv_lint.outputs import page
from pkv_lint.outputs.excerpts import excerpts
from pkv_lint.outputs.wording import APPROXIMATE, costs, place
from pkv_lint.prompt.prompt import Prompt

State = Literal["reused", "lost", "new"]
"""Of a block: served from the cache; cached, but not reused because of a break in front of it; never seen before."""

TEMPLATE = "report.html.jinja"
AROUND = 52
"""Columns of both prompts shown on each side of a break."""
HEAD, BEFORE, BEHIND, TAIL = 2, 2, 24, 2
"""Blocks of a prompt that are shown at once: of its start, around what is blamed and the break, of its end."""
WHOLE = 256
"""Blocks up to which the others can be unfolded; of longer prompts they are left out."""
BARS = 600
"""Bars of the chart; of more requests, neighbours are put together."""
ROWS = 1000
"""Requests that are listed; of more, those that lost most."""


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring blocks in one state."""

    state: State
    blocks: int
    tokens: int

    @property
    def title(self) -> str:
        return f"{counted(self.blocks, 'block')} {self.state}: {self.tokens:,} tokens"


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of a block; `blamed` characters are those that a finding names, `breaks` says that the prefix ends here."""

    text: str
    blamed: bool = False
    breaks: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """A block with its text."""

    state: State
    title: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring blocks, `folded` or shown at once. Of long prompts, folded `blocks` are left out."""

    folded: bool
    count: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """One request: its strip, and the finding (by number) that it is part of."""

    label: str
    file: str
    title: str
    tokens: int
    runs: tuple[Run, ...]
    finding: int | None

    def in_state(self, state: State) -> int:
        """Tokens in this state."""
        return sum(run.tokens for run in self.runs if run.state == state)


@dataclass(frozen=True, slots=True)
class Item:
    """One finding with the prompt of the request that it shows."""

    number: int
    finding: Finding
    place: str
    path: str
    message: str
    costs: tuple[str, ...]
    versions: tuple[tuple[str, str, str], ...]
    request: Request | None
    break_at: float | None
    stretches: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """A request of the chart, or several that are taken together: mean tokens by state."""

    title: str
    reused: float
    lost: float
    new: float
    finding: int | None


def lines(reports: Sequence[Report]) -> Iterator[str]:
    """One HTML document."""
    found = list(all_findings(reports))
    worst_of = worst_findings(found)
    requests = [request for report in reports for request in requests_of(report, worst_of[id(report)])]
    listed = requests
    if len(requests) > ROWS:
        worst = sorted(range(len(requests)), key=lambda at: -requests[at].in_state("lost"))[:ROWS]
        listed = [requests[at] for at in sorted(worst)]
    chart = bars(requests)
    values: dict[str, object] = dict(
        files=list(dict.fromkeys(name for report in reports for name in files_in(report))),
        items=[item(number, report, finding) for number, (report, finding) in enumerate(found, 1)],
        counts={name: sum(finding.severity == name for _, finding in found) for name in SEVERITIES},
        requests=requests,
        listed=listed,
        bars=chart,
        top=max((bar.reused + bar.lost + bar.new for bar in chart), default=0) or 1,
        tokens={state: sum(request.in_state(state) for request in requests) for state in ("reused", "lost", "new")},
        longest=max((request.tokens for request in requests), default=1),
        block_size=reports[0].facts.block_size if reports else 0,
        note=APPROXIMATE if any(report.facts.approximate for report in reports) else "",
    )
    yield page.render("pkv_lint.outputs", TEMPLATE, values)


def files_in(report: Report) -> list[str]:
    names = [turn.line.file for turn in report.facts.turns] + [finding.file for finding in report.unusable]
    return list(map(visible, names))


def worst_findings(found: Iterable[tuple[Report, Finding]]) -> dict[int, dict[int, int]]:
    """For each report (by id) and request the number of the worst finding that the request is part of."""
    worst: dict[int, dict[int, int]] = defaultdict(dict)
    for number, (report, finding) in enumerate(found, 1):
        if finding.request is not None:
            for index in finding.evidence.get("requests") or [finding.request]:
                worst[id(report)].setdefault(index, number)
    return worst


def requests_of(report: Report, parts: Mapping[int, int]) -> Iterator[Request]:
    """The requests of a report, each with the worst finding it is part of."""
    for replayed in report.facts.replayed:
        yield request_of(report, replayed, parts.get(replayed.turn.index))


def request_of(report: Report, replayed: Replayed, finding: int | None) -> Request:
    line, tokens = replayed.turn.line, len(replayed.turn.ids)
    runs = tuple(strip(replayed, report.facts.block_size))
    session = f", session {line.session_id}" if line.session_id is not None else ""
    title = f"{nth(replayed.turn.index)} request, line {line.line} of {line.file}{session}"
    return Request(nth(replayed.turn.index), visible(line.file), visible(title), tokens, runs, finding)


def strip(replayed: Replayed, size: int) -> Iterator[Run]:
    """The blocks of a prompt as runs of one state, in the order of the prompt."""
    tokens = len(replayed.turn.ids)
    ends: tuple[tuple[State, int], ...] = (("reused", replayed.hit), ("lost", reachable(replayed)), ("new", tokens))
    start = 0
    for state, end in ends:
        if end > start:
            yield Run(state, -(-end // size) - start // size, end - start)
            start = end


def reachable(replayed: Replayed) -> int:
    """Tokens that would have been reused without the causes that were found: all at most, though the prompt may have
    been longer without them (where a history lost its head)."""
    without = max((cause.hit_without for cause in replayed.causes), default=0)
    return min(max(replayed.hit, replayed.unread, without), len(replayed.turn.ids))


def bars(requests: Sequence[Request]) -> list[Bar]:
    step = -(-len(requests) // BARS) or 1
    chart = []
    for start in range(0, len(requests), step):
        group = requests[start : start + step]
        reused, lost, new = (sum(one.in_state(state) for one in group) for state in ("reused", "lost", "new"))
        label = group[0].title if step == 1 else f"{group[0].label} to {group[-1].label} request"
        title = f"{label}: {reused + lost + new:,} tokens, {reused:,} reused, {lost:,} lost"
        finding = next((one.finding for one in group if one.finding is not None), None)
        chart.append(Bar(title, reused / len(group), lost / len(group), new / len(group), finding))
    return chart


def item(number: int, report: Report, finding: Finding) -> Item:
    replayed = next((one for one in report.facts.replayed if one.turn.index == finding.request), None)
    request = request_of(report, replayed, number) if replayed else None
    token = finding.evidence.get("token")
    return Item(
        number,
        finding,
        visible(place(finding)),
        visible(finding.path or ""),
        visible(finding.message),
        tuple(costs(report, finding)),
        tuple(versions(report, finding)),
        request,
        100 * token / request.tokens if token is not None and request and request.tokens else None,
        tuple(stretches(replayed, finding, report.facts.block_size)) if replayed else (),
    )


def versions(report: Report, finding: Finding) -> Iterator[tuple[str, str, str]]:
    """Of both prompts: whose it is, the text in front of the break, and the text from there on."""
    for excerpt in excerpts(report, finding, AROUND):
        head, tail = ("…" if excerpt.cut_in_front else ""), ("…" if excerpt.cut_behind else "")
        yield nth(excerpt.turn.index), head + excerpt.head, excerpt.tail + tail


def stretches(replayed: Replayed, finding: Finding, size: int) -> Iterator[Stretch]:
    """The blocks of the prompt with their text: those around what is blamed and around the break, the others folded."""
    prompt = replayed.turn.prompt
    if prompt.text is None:
        return
    bounds = [prompt.token_spans[first][0] for first in range(0, len(prompt.token_ids), size)] + [len(prompt.text)]
    marked = blamed(prompt, finding)
    token = finding.evidence.get("token")
    break_at = prompt.token_spans[token][0] if token is not None and token < len(prompt.token_ids) else None
    count = len(bounds) - 1

    def block(index: int) -> Block:
        first, last = index * size, min((index + 1) * size, len(prompt.token_ids)) - 1
        state: State = "reused" if first < replayed.hit else "lost" if first < reachable(replayed) else "new"
        title = f"block {index + 1:,} of {count:,}, tokens {first:,} to {last:,}: {state}"
        text = pieces(prompt.text or "", bounds[index], max(bounds[index : index + 2]), marked, break_at)
        return Block(state, title, tuple(text))

    keep = kept(count, centres(bounds, marked, token, size))
    for shown, group in groupby(range(count), key=keep.__contains__):
        indices = list(group)
        held = indices if shown or count <= WHOLE else []
        yield Stretch(not shown, len(indices), tuple(map(block, held)))


def blamed(prompt: Prompt, finding: Finding) -> list[tuple[int, int]]:
    """The characters of the prompt that were printed from what a finding names."""
    found = []
    for origin in prompt.origins:
        if finding.path is None or origin.path is None or not origin.path.startswith(finding.path):
            continue
        start, end = origin.start, origin.end
        if finding.span is not None:
            if origin.path != finding.path or not origin.linear:
                continue
            start = max(start, start + finding.span[0] - origin.offset)
            end = min(end, origin.start + finding.span[1] - origin.offset)
        elif origin.path[len(finding.path) :][:1] not in ("", ".", "["):
            continue
        if start < end:
            found.append((start, end))
    return found


def centres(bounds: Sequence[int], marked: Sequence[tuple[int, int]], token: int | None, size: int) -> Iterator[int]:
    """The blocks that a reader looks for: that of the break, and the first that is blamed."""
    if token is not None:
        yield token // size
    if marked:
        yield sum(bound <= marked[0][0] for bound in bounds) - 1


def kept(count: int, wanted: Iterator[int]) -> set[int]:
    """The blocks that are shown at once; a few between two of them are not worth folding."""
    blocks = {*range(min(HEAD, count)), *range(max(0, count - TAIL), count)}
    for centre in wanted:
        blocks.update(range(max(0, centre - BEFORE), min(count, centre + BEHIND)))
    for left, right in pairwise(sorted(blocks)):
        if right - left <= BEFORE + 1:
            blocks.update(range(left, right))
    return blocks


def pieces(
    text: str, start: int, stop: int, marked: Sequence[tuple[int, int]], break_at: int | None
) -> Iterator[Piece]:
    """The text of a block, cut where blame begins or ends and where the prefix breaks."""
    cuts = {start, stop, *(edge for span in marked for edge in span if start < edge < stop)}
    if break_at is not None and start <= break_at < stop:
        cuts.add(break_at)
    edges = sorted(cuts)
    for left, right in pairwise(edges):
        is_blamed = any(first <= left < last for first, last in marked)
        yield Piece(readable(text[left:right]), is_blamed, left == break_at)


def readable(text: str) -> str:
    """The text with its line ends; what a browser would not show is made visible."""
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in text.split("\n"))
