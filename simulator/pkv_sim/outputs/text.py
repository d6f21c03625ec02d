"""A simulation for a person: how much is reused, where the rest went, and what to change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import click

from pkv_lint.columns import visible
from pkv_lint.findings import counted
from pkv_sim.bounds import Bounds
from pkv_sim.outputs.causes import CauseTotal, cause_totals
from pkv_sim.serving.misses import Misses
from pkv_sim.simulation import Simulation, share

MEANING = {
    "other_replica": "cached on another replica",
    "other_namespace": "cached under another salt or adapter",
    "evicted": "was cached, but there was no room to keep it",
    "last_block": "the last token is always computed, and with it its block",
    "diverged": "an earlier request goes on otherwise",
    "first_seen": "new",
    "partial_block": "behind the last full block",
    "below_block": "the prompt is shorter than a block",
}
ORDER = {
    "sequential": "one request after the other",
    "recorded": "at the recorded times",
    "simulated": "in simulated time",
}
BAR = 24
"""Characters of a bar for everything."""
EIGHTHS = " ▏▎▍▌▋▊▉"
MOST = 10
"""Causes, refusals and requests that are listed before the others are only counted."""


def lines(
    simulation: Simulation, bounds: Bounds | None = None, *, per_request: bool = False, room: Iterable[str] = ()
) -> Iterator[str]:
    """The summary of one simulation. `room` says where the number of blocks comes from."""
    yield from headline(simulation)
    yield from room
    yield ""
    yield from rate_lines(simulation, bounds)
    yield ""
    yield from table(simulation)
    causes = cause_totals(simulation.served)
    if causes:
        yield ""
        yield from cause_lines(simulation, causes)
    if per_request:
        yield ""
        yield from request_lines(simulation)


def headline(simulation: Simulation) -> Iterator[str]:
    workload, settings = simulation.workload, simulation.settings
    sessions = {item.request.session_id for item in simulation.served} - {None}
    what = counted(len(simulation.served), "request")
    if sessions:
        what += f" in {counted(len(sessions), 'session')}"
    yield f"{click.style(visible(workload.name), bold=True)}  {what}, {simulation.prompt_tokens:,} prompt tokens"
    size = f"blocks of {workload.block_size} tokens"
    if settings.num_gpu_blocks is None:
        room = "no limit to their number"
    else:
        room = f"{settings.num_gpu_blocks:,} of them ({settings.num_gpu_blocks - 1:,} usable)"
    yield f"{size}, {room}; {ORDER[settings.schedule]}"


def rate_lines(simulation: Simulation, bounds: Bounds | None) -> Iterator[str]:
    rate = click.style(percent(simulation.hit_rate, 2), bold=True)
    yield (
        f"hit rate {rate}  {simulation.cached_tokens:,} of {simulation.prompt_tokens:,} prompt tokens, "
        f"{simulation.hit_blocks:,} of {simulation.full_blocks:,} full blocks ({percent(simulation.block_hit_rate, 2)})"
    )
    yield from bounds_lines(bounds)


def bounds_lines(bounds: Bounds | None) -> Iterator[str]:
    """Between which rates replies decide, where they make a difference."""
    if bounds is not None and abs(bounds.all_reused - bounds.none_reused) >= 0.00005:
        low, high = percent(bounds.none_reused, 2), percent(bounds.all_reused, 2)
        yield f"generated text: {low} if none of it is reused, {high} if all of it is"


def table(simulation: Simulation) -> Iterator[str]:
    total = simulation.prompt_tokens
    rows = [("cached", simulation.cached_tokens, "")]
    rows += [(name, tokens, MEANING[name]) for name, tokens in simulation.misses._asdict().items() if tokens]
    width = max(len(f"{tokens:,}") for _, tokens, _ in rows)
    for name, tokens, meaning in rows:
        part = share(tokens, total)
        colour = "green" if name == "cached" else "yellow"
        line = f"  {name.replace('_', ' '):<15}  {tokens:>{width},}  {percent(part):>7}"
        if shown := bar(part):
            line += f"  {click.style(shown, fg=colour)}"
        yield f"{line}{'':{BAR - len(shown) + (2 if shown else 4)}}{meaning}" if meaning else line


def bar(part: float) -> str:
    """A part of a whole as a bar of block characters."""
    eighths = round(part * BAR * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + EIGHTHS[rest]).rstrip()


def cause_lines(simulation: Simulation, causes: Sequence[CauseTotal]) -> Iterator[str]:
    about = "about " if simulation.workload.approximate else ""
    for cause in causes[:MOST]:
        place = f" at {visible(cause.path)}" if cause.path else ""
        part = share(cause.tokens, simulation.misses.tokens)
        yield (
            f"  {click.style(cause.code, fg='red', bold=True)}{place} costs {about}{percent(part)} of prefill: "
            f"{cause.tokens:,} tokens in {counted(cause.requests, 'request')} ({cause.name})"
        )
    if len(causes) > MOST:
        yield f"  and {counted(len(causes) - MOST, 'cause')} more (--format json)"
    yield "  pkv-lint on the same file shows where and what to change."


def request_lines(simulation: Simulation) -> Iterator[str]:
    """A table with one line per request."""
    several = simulation.settings.replicas > 1
    yield f"  {'request':>7}  {'replica  ' if several else ''}{'prompt':>9}  {'cached':>9}  {'':>7}  missed"
    for item in simulation.served:
        prompt = item.request.num_prompt_tokens
        missed = ", ".join(
            f"{name.replace('_', ' ')} {tokens:,}" for name, tokens in item.misses._asdict().items() if tokens
        )
        codes = "".join(f" [{blame.code} {blame.tokens:,}]" for blame in item.blames)
        yield (
            f"  {item.request.index:>7}  {f'{item.replica:>7}  ' if several else ''}{prompt:>9,}  "
            f"{item.cached_tokens:>9,}  "
            f"{percent(share(item.cached_tokens, prompt)):>7}  {missed}{codes}"
        )


def remarks(simulation: Simulation) -> Iterator[str]:
    """The notes as lines."""
    found = [*notes(simulation)]
    if found:
        yield ""
    for note in found:
        yield f"{click.style('note:', fg='cyan')} {visible(note)}"


def notes(simulation: Simulation) -> Iterator[str]:
    """What else should be known to judge the figures."""
    workload = simulation.workload
    yield from workload.notes
    yield from simulation.notes
    if not workload.content_known:
        yield "only lengths are recorded, so no two prompts share anything here"
    if simulation.waits is not None and simulation.waits.requests:
        waited = counted(simulation.waits.requests, "request")
        yield f"{waited} waited for blocks, {simulation.waits.seconds:,.1f} s in all"
    if simulation.refused:
        first = simulation.refused[0]
        yield f"{counted(len(simulation.refused), 'request')} refused; the first, in line {first.line}: {first.reason}"
    if workload.layout == "builtin":
        yield "no model was named (--model): layout and vocabulary are built-in, so figures are approximate"
    elif workload.approximate:
        yield "no tokenizer was named (--tokenizer): another vocabulary stands in, so figures are approximate"


def comparison(before: Simulation, after: Simulation) -> Iterator[str]:
    """Two simulations side by side."""
    yield f"before  {visible(before.workload.name)}"
    yield f"after   {visible(after.workload.name)}"
    yield ""
    yield f"  {'':<15}  {'before':>15}  {'after':>15}  {'change':>15}"
    for name, was, now in changes(before, after):
        yield row(name.replace("_", " "), was, now)
    old, new = percent(before.hit_rate, 2), percent(after.hit_rate, 2)
    points = (after.hit_rate - before.hit_rate) * 100
    yield (
        f"  {'hit rate':<15}  {old:>15}  {new:>15}  "
        + click.style(f"{f'{points:+.2f} points':>15}", fg="green" if points >= 0 else "red", bold=True)
    )


def changes(before: Simulation, after: Simulation) -> Iterator[tuple[str, int, int]]:
    """What is counted in both, by name: requests, and tokens by what became of them."""
    yield "requests", len(before.served), len(after.served)
    yield "prompt_tokens", before.prompt_tokens, after.prompt_tokens
    yield "cached", before.cached_tokens, after.cached_tokens
    for name, was, now in zip(Misses._fields, before.misses, after.misses, strict=True):
        if was or now:
            yield name, was, now
    yield "computed", before.misses.tokens, after.misses.tokens


def row(name: str, old: int, new: int) -> str:
    return f"  {name:<15}  {old:>15,}  {new:>15,}  {new - old:>+15,}"


def percent(part: float, digits: int = 1) -> str:
    return f"{part * 100:.{digits}f} %"
