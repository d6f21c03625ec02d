"""From a file of traffic to a workload."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.formats import BlockLine, Traffic, read_traffic
from pkv_lint.prompt.model_config import DEFAULT_BLOCK_SIZE
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.request import has_media
from pkv_lint.prompt.streams import Source, name_of
from pkv_lint.prompt.traffic import TrafficLine
from pkv_lint.turns import Refused as RefusedLine
from pkv_lint.turns import Turn, read_turns
from pkv_sim.blame import blames_of
from pkv_sim.progress import Progress, silently
from pkv_sim.workload import Blame, Refused, TrafficRequest, Workload, by_time

Item = TrafficLine | BlockLine | InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a file is read: `block_size` as stated (tokens; None: what the format says, else vLLM's default), `subagents`
    whether nested agents of sessions count, `causes` whether the linter is asked why prompts diverge, `zone` the
    server's time zone."""

    block_size: int | None = None
    subagents: bool = False
    causes: bool = True
    zone: tzinfo = UTC
    progress: Progress = silently


def load_workload(source: Source, renderer: Renderer, reading: Reading) -> Workload:
    """The requests of a file (`-` is stdin) or of a binary stream, in their order of arrival.

    Raises InputError for what cannot be read, and for a file without a request that the server would serve.
    """
    name = name_of(source)
    traffic = read_traffic(
        source, name=name, zone=reading.zone, block_size=reading.block_size, subagents=reading.subagents
    )
    loader = _Loader(name, traffic, renderer, traffic.block_size or reading.block_size or DEFAULT_BLOCK_SIZE)
    if traffic.format in ("mooncake", "weka", "azure", "burstgpt"):
        loader.blocks(reading.progress(traffic.items, "requests read:"))
    else:
        loader.text(traffic.items, reading)
    workload = loader.workload()
    if not workload.requests:
        raise loader.empty()
    return workload.arranged()


class _Loader:
    def __init__(self, name: str, traffic: Traffic, renderer: Renderer, block_size: int) -> None:
        self.name = name
        self.traffic = traffic
        self.renderer = renderer
        self.block_size = block_size
        self.requests: list[TrafficRequest] = []
        self.refused: list[Refused] = []
        self.unusable: list[InputError] = []
        self.blames: dict[int, tuple[Blame, ...]] = {}

    def workload(self) -> Workload:
        known = self.traffic.format not in ("azure", "burstgpt")
        text = any(request.ids is not None for request in self.requests)
        return Workload(
            self.name,
            self.traffic.format,
            self.block_size,
            tuple(self.requests),
            tuple(self.refused),
            tuple(self.unusable),
            blames=self.blames,
            content_known=known,
            layout=self.renderer.layout if text else "model",
            approximate=self.renderer.approximate and text,
        )

    def empty(self) -> InputError:
        """Why there is nothing to simulate."""
        if self.unusable:
            return self.unusable[0]
        if self.refused:
            first = self.refused[0]
            message = f"the server would refuse every request; the first: {first.reason}"
            return InputError(message, file=first.file, line=first.line)
        return InputError("holds no request", file=self.name)

    def blocks(self, items: Iterable[Item]) -> None:
        """Requests of a trace. Of those that tell their lengths only, each gets blocks of its own."""
        unused = 0
        for item in items:
            if isinstance(item, InputError):
                self.unusable.append(item)
                continue
            assert isinstance(item, BlockLine)
            runs = item.runs
            if runs is None:
                full = item.input_length // self.block_size
                runs = array("q", (unused, unused + full - 1) if full else ())
                unused += full
            self._take(
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

    def text(self, items: Iterable[Item], reading: Reading) -> None:
        """Requests with their content."""
        turns: list[Turn] = []
        lines = self._lines(reading.progress(items, "requests rendered:"))
        for item in read_turns(lines, self.renderer, datetime.now()):
            if isinstance(item, InputError):
                self.unusable.append(item)
            elif isinstance(item, RefusedLine):
                line = item.line
                self.refused.append(Refused(line.index, line.file, line.line, str(item.error)))
            elif any(has_media(message) for message in item.chat["messages"]):
                reason = "an image, audio or video is in it, whose tokens are not modelled"
                self.refused.append(Refused(item.line.index, item.line.file, item.line.line, reason))
            elif self._take(request_of(item)) and reading.causes and item.line.request is not None:
                turns.append(item)
        if turns:
            arrived = by_time(turns, lambda turn: turn.line.moment.seconds)
            self.blames = blames_of(arrived, self.renderer, self.block_size, reading.progress)

    def _lines(self, items: Iterable[Item]) -> Iterator[TrafficLine | InputError]:
        for item in items:
            assert not isinstance(item, BlockLine)
            yield item

    def _take(self, request: TrafficRequest) -> bool:
        """Whether the server would serve it."""
        most = self.renderer.deployment.max_model_len
        if not request.num_prompt_tokens:
            reason = "an empty prompt"
        elif most is not None and request.num_prompt_tokens >= most:
            reason = f"{request.num_prompt_tokens:,} prompt tokens are too many for a model length of {most:,}"
        else:
            self.requests.append(request)
            return True
        self.refused.append(Refused(request.index, request.file, request.line, reason))
        return False


def request_of(turn: Turn) -> TrafficRequest:
    """A rendered request as the simulator takes it."""
    line = turn.line
    recorded = line.output_tokens
    if recorded is None and len(turn.generated):
        recorded = len(turn.generated) + 1
    return TrafficRequest(
        line.index,
        line.file,
        line.line,
        len(turn.ids),
        ids=turn.ids,
        namespace=turn.namespace,
        session_id=line.session_id,
        tenant=line.tenant,
        start=line.moment.seconds,
        end=line.end.seconds,
        generated=turn.generated if len(turn.generated) else None,
        num_generated_tokens=recorded,
        reads_cache=turn.unread_for is None,
    )
