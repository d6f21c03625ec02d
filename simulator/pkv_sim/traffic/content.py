"""Requests with their content: rendered, tokenised, and looked at by the linter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.formats import BlockLine, Traffic
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.request import has_media
from pkv_lint.prompt.traffic import TrafficLine
from pkv_lint.turns import Refused, Turn, read_turns
from pkv_sim.traffic.intake import Intake, Reading
from pkv_sim.traffic.workload import TrafficRequest, Workload, by_time

SAMPLES = (
    "requests that ask for several samples (n): {:,}, each simulated with one; in vLLM every further sample is a "
    "request of its own, which hits the prompt's full blocks"
)


def take_content(
    traffic: Traffic, intake: Intake, workload: Workload, renderer: Renderer, reading: Reading
) -> Workload:
    """Render the requests of a traffic into `intake`; the workload with what renderer and linter say of them."""
    turns: list[Turn] = []
    rendered = False
    sampled = 0
    lines = _with_content(reading.progress(traffic.items, "requests rendered:"))
    for item in read_turns(lines, renderer, datetime.now()):
        if isinstance(item, InputError):
            intake.unusable.append(item)
            continue
        rendered = rendered or item.line.request is not None
        if isinstance(item, Refused):
            intake.refuse(item.line, str(item.error))
        elif any(has_media(message) for message in item.chat["messages"]):
            intake.refuse(item.line, "an image, audio or video is in it, whose tokens are not modelled")
        elif intake.take(request_of(item)):
            sampled += (item.chat.get("n") or 1) > 1
            # Token ids have no text that a finding could point at.
            if reading.causes and item.line.request is not None:
                turns.append(item)
    if sampled:
        workload = replace(workload, notes=(*workload.notes, SAMPLES.format(sampled)))
    if rendered:
        workload = replace(
            workload, layout=renderer.layout, approximate=renderer.approximate, end_token=end_token(renderer)
        )
    if turns:
        from pkv_sim.traffic.blame import blames_of

        arrived = by_time(turns, lambda turn: turn.line.moment.seconds)
        workload = replace(workload, blames=blames_of(arrived, renderer, workload.block_size, reading.progress))
    return workload


def _with_content(items: Iterable[TrafficLine | BlockLine | InputError]) -> Iterator[TrafficLine | InputError]:
    for item in items:
        assert not isinstance(item, BlockLine)
        yield item


def end_token(renderer: Renderer) -> int | None:
    """The token by which the model ends a reply, where the tokenizer tells."""
    text = renderer.special_tokens.get("eos_token")
    return renderer.tokenizer.token_id(text) if text else None


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
        priority=priority if isinstance(priority := turn.chat.get("priority"), int) else 0,
    )
