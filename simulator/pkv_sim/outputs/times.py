"""Times of a simulation as text and as JSON, labelled with where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from pkv_lint.columns import visible
from pkv_lint.findings import counted
from pkv_sim.latency import Latency, latency_of, throughput_of
from pkv_sim.outputs.json import rounded
from pkv_sim.outputs.text import percent
from pkv_sim.serving.times import Distribution
from pkv_sim.simulation import Served, Simulation
from pkv_sim.timing.file import timing_to_json
from pkv_sim.timing.timing_profile import TimingProfile


def lines(simulation: Simulation, *, per_request: bool = False) -> Iterator[str]:
    """Percentiles, and under the simulated schedule what was done in which time."""
    timing, latency = simulation.settings.timing, latency_of(simulation)
    if timing is None or latency is None:
        return
    yield origin(timing)
    yield f"  {'':<22}  {'mean':>10}  {'p50':>10}  {'p95':>10}  {'p99':>10}  {'max':>10}"
    for name, distribution in rows(latency):
        values = (distribution.mean, distribution.p50, distribution.p95, distribution.p99, distribution.max)
        yield f"  {name:<22}  " + "  ".join(f"{shown(value):>10}" for value in values)
    for line in work_lines(simulation):
        yield f"  {line}"
    if per_request:
        yield ""
        yield from request_lines(simulation.served)


def work_lines(simulation: Simulation) -> Iterator[str]:
    """What was done in which time, and what waited."""
    throughput = throughput_of(simulation)
    if throughput is None:
        yield "each request as if it were alone on its replica: nothing waits"
        return
    running = max(engine.peak_running for engine in simulation.engines)
    waiting = max(engine.peak_waiting for engine in simulation.engines)
    yield (
        f"{shown(throughput.seconds)} in all: {throughput.per_second(throughput.requests):,.2f} requests/s, "
        f"{throughput.per_second(throughput.prompt_tokens):,.0f} prompt tokens/s, "
        f"{throughput.per_second(throughput.output_tokens):,.0f} output tokens/s"
    )
    on = "" if len(simulation.engines) == 1 else " on a replica"
    yield (
        f"at most {running:,} running and {waiting:,} waiting at once{on}, "
        f"{counted(throughput.preemptions, 'preemption')}"
    )


def comparison(before: Simulation, after: Simulation) -> Iterator[str]:
    """The times of two simulations side by side."""
    timing, was, now = after.settings.timing, latency_of(before), latency_of(after)
    if timing is None or was is None or now is None:
        return
    yield ""
    after_rows = dict(rows(now))
    for name, old in rows(was):
        if (new := after_rows.get(name)) is None:
            continue
        for part in ("p50", "p95"):
            values = getattr(old, part), getattr(new, part)
            change = values[1] - values[0]
            sign = "-" if change < 0 else "+"
            yield (
                f"  {f'{name}, {part}':<27}  {shown(values[0]):>12}  {shown(values[1]):>12}  "
                f"{sign + shown(abs(change)):>12}"
            )
    yield f"  {origin(timing)}"


def origin(timing: TimingProfile) -> str:
    """What the times rest on."""
    what = visible(f"{timing.model} on {timing.device}")
    if timing.kind == "roofline":
        return f"times are an estimate (roofline of {what}): expect a real server to be slower"
    found = f"times by a profile that was fitted to {what}"
    if timing.residuals is not None:
        found += f" (off by {percent(timing.residuals.median)} in the median of {timing.residuals.points:,} points)"
    return found


def rows(latency: Latency) -> Iterator[tuple[str, Distribution]]:
    for name, distribution in (
        ("time to first token", latency.ttft),
        ("time in the queue", latency.queued),
        ("time per output token", latency.tpot),
        ("end to end", latency.e2e),
    ):
        if distribution is not None:
            yield name, distribution


def request_lines(served: Sequence[Served]) -> Iterator[str]:
    """A table with one line per request."""
    if all(item.times is None for item in served):
        yield f"  {'request':>7}  {'first token':>11}"
        for item in served:
            yield f"  {item.request.index:>7}  {shown(item.ttft or 0.0):>11}"
        return
    yield (
        f"  {'request':>7}  {'arrival':>12}  {'queued':>10}  {'first token':>11}  {'per token':>10}  "
        f"{'end to end':>10}  {'output':>7}  preempted"
    )
    start = min(item.times.arrival for item in served if item.times is not None)
    for item in served:
        if (times := item.times) is not None:
            per_token = "" if times.tpot is None else shown(times.tpot)
            yield (
                f"  {item.request.index:>7}  {times.arrival - start:>10,.2f} s  {shown(times.queued):>10}  "
                f"{shown(times.ttft):>11}  {per_token:>10}  {shown(times.e2e):>10}  {times.output_tokens:>7,}  "
                f"{times.preemptions:>9,}"
            )


def shown(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 0.99995 else f"{seconds:,.2f} s"


def members(simulation: Simulation) -> dict[str, Any]:
    """`timing`, the profile, and `times` in seconds."""
    timing, latency, throughput = simulation.settings.timing, latency_of(simulation), throughput_of(simulation)
    if timing is None:
        return {}
    times: dict[str, Any] = {"estimate": timing.kind == "roofline"}
    if latency is not None:
        for name in ("ttft", "queued", "tpot", "e2e"):
            distribution: Distribution | None = getattr(latency, name)
            if distribution is not None:
                times[name] = {key: rounded(value) for key, value in asdict(distribution).items()}
    if throughput is not None:
        times |= {
            "seconds": rounded(throughput.seconds),
            "requests_per_second": rounded(throughput.per_second(throughput.requests)),
            "prompt_tokens_per_second": rounded(throughput.per_second(throughput.prompt_tokens)),
            "output_tokens_per_second": rounded(throughput.per_second(throughput.output_tokens)),
            "output_tokens": throughput.output_tokens,
            "preemptions": throughput.preemptions,
            "engines": [
                {
                    "steps": engine.steps,
                    "busy": rounded(engine.busy),
                    "peak_running": engine.peak_running,
                    "peak_waiting": engine.peak_waiting,
                }
                for engine in simulation.engines
            ],
        }
    return {"timing": timing_to_json(timing), "times": times}


def request_member(item: Served) -> dict[str, Any]:
    """The times of one request; nothing where it was not timed."""
    if item.ttft is None:
        return {}
    times = item.times
    if times is None:
        return {"times": {"ttft": rounded(item.ttft)}}
    return {
        "times": {
            "arrival": rounded(times.arrival),
            "queued": rounded(times.queued),
            "ttft": rounded(times.ttft),
            "tpot": None if times.tpot is None else rounded(times.tpot),
            "e2e": rounded(times.e2e),
            "output_tokens": times.output_tokens,
            "preemptions": times.preemptions,
        }
    }
