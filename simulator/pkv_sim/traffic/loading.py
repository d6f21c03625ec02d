"""From a file of traffic to a workload."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.formats import BlockLine, Format, Traffic, read_traffic
from pkv_lint.prompt.model_config import DEFAULT_BLOCK_SIZE
from pkv_lint.prompt.streams import Source, name_of
from pkv_lint.prompt.traffic import TrafficLine
from pkv_sim.progress import Progress
from pkv_sim.traffic.intake import Intake, Reading
from pkv_sim.traffic.workload import TrafficRequest, Workload

if TYPE_CHECKING:
    from pkv_lint.prompt.renderer import Renderer

TRACES: tuple[Format, ...] = ("mooncake", "weka", "azure", "burstgpt")
LENGTHS_ONLY: tuple[Format, ...] = ("azure", "burstgpt")


def load_workload(source: Source, renderer: Callable[[], Renderer], reading: Reading) -> Workload:
    """The requests of a file (`-` is stdin) or of a binary stream, in their order of arrival. `renderer` is called when
    there is content to render.

    Raises InputError for what cannot be read, and for a file without a request that the server would serve.
    """
    name = name_of(source)
    traffic = read_traffic(
        source, name=name, zone=reading.zone, block_size=reading.block_size, subagents=reading.subagents
    )
    block_size = traffic.block_size or reading.block_size or DEFAULT_BLOCK_SIZE
    intake = Intake(reading.max_model_len)
    workload = Workload(name, traffic.format, block_size, ())
    if traffic.format in TRACES:
        _take_trace(traffic, intake, block_size, reading.progress)
        workload = replace(workload, content_known=traffic.format not in LENGTHS_ONLY)
    else:
        # Templates and tokenizers take longer to import than many traces take to simulate.
        from pkv_sim.traffic.content import take_content

        workload = take_content(traffic, intake, workload, renderer(), reading)
    if not intake.requests:
        raise intake.nothing(name)
    return replace(
        workload,
        requests=tuple(intake.requests),
        refused=tuple(intake.refused),
        unusable=tuple(intake.unusable),
    ).arranged()


def _take_trace(traffic: Traffic, intake: Intake, block_size: int, progress: Progress) -> None:
    """Requests that are known by blocks. Of those that tell their lengths only, each gets blocks of its own."""
    unused = 0
    items: Iterable[TrafficLine | BlockLine | InputError] = progress(traffic.items, "requests read:")
    for item in items:
        if isinstance(item, InputError):
            intake.unusable.append(item)
            continue
        assert isinstance(item, BlockLine)
        runs = item.runs
        if runs is None:
            full = item.input_length // block_size
            runs = array("q", (unused, unused + full - 1) if full else ())
            unused += full
        intake.take(
            TrafficRequest(
                item.index,
                item.file,
                item.line,
                item.input_length,
                runs=runs,
                session_id=item.session_id,
                start=item.moment.seconds,
                end=item.end.seconds,
                num_generated_tokens=item.output_length,
            )
        )
