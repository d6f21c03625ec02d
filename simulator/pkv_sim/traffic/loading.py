"""From a file of traffic to a workload."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.formats import BlockLine, Format, Traffic, read_traffic
from pkv_lint.prompt.model_config import DEFAULT_BLOCK_SIZE
from pkv_lint.prompt.streams import Source, name_of
from pkv_lint.prompt.traffic import TrafficLine
from pkv_sim.progress import Progress, silently
from pkv_sim.traffic.workload import Refused, TrafficRequest, Workload

if TYPE_CHECKING:
    from pkv_lint.prompt.renderer import Renderer

TRACES: tuple[Format, ...] = ("mooncake", "weka", "azure", "burstgpt")
LONGEST = 1 << 26
"""More tokens than this no model takes in one sequence."""
LENGTHS_ONLY: tuple[Format, ...] = ("azure", "burstgpt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a file is read: `block_size` as stated (tokens; None: what the format says, else vLLM's default), `subagents`
    whether nested agents of sessions count, `causes` whether the linter is asked why prompts diverge, `max_model_len`
    the longest sequence that the server takes (tokens; None: not known), `zone` the server's time zone, `progress` what
    shows how far it is."""

    block_size: int | None = None
    subagents: bool = False
    causes: bool = True
    max_model_len: int | None = None
    zone: tzinfo = UTC
    progress: Progress = silently


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


@dataclass(slots=True)
class Intake:
    """What a file holds: requests, those that the server would refuse, and lines that cannot be used."""

    max_model_len: int | None
    requests: list[TrafficRequest] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    unusable: list[InputError] = field(default_factory=list)

    def take(self, request: TrafficRequest) -> bool:
        """Whether the server would serve it."""
        most, tokens = self.max_model_len, request.num_prompt_tokens
        if not tokens:
            self.refuse(request, "an empty prompt")
        elif most is not None and tokens >= most:
            self.refuse(request, f"{tokens:,} prompt tokens are too many for a model length of {most:,}")
        elif (whole := tokens + (request.num_generated_tokens or 0)) > LONGEST:
            self.refuse(request, f"{whole:,} tokens of prompt and reply are more than any model takes ({LONGEST:,})")
        else:
            self.requests.append(request)
            return True
        return False

    def refuse(self, request: TrafficRequest | TrafficLine, reason: str) -> None:
        self.refused.append(Refused(request.index, request.file, request.line, reason))

    def nothing(self, name: str) -> InputError:
        """Why there is nothing to simulate."""
        if self.unusable:
            return self.unusable[0]
        if self.refused:
            first = self.refused[0]
            message = f"the server would refuse every request; the first: {first.reason}"
            return InputError(message, file=first.file, line=first.line)
        return InputError("holds no request", file=name)


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
