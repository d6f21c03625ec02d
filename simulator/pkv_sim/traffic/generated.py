"""What of the generated tokens is cached: nothing, the room that they take, or their text as well."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pkv_lint.prompt.formats import number_of_blocks
from pkv_sim.traffic.runs import cut, num_shared, pairs
from pkv_sim.traffic.workload import TrafficRequest

Generated = Literal["recorded", "none", "counted", "text"]
LOOK_AHEAD = 8
"""Later requests of a session among which the next turn is looked for."""


@dataclass(frozen=True, slots=True)
class Replies:
    """What of the replies is cached: their `text` where it is known, and room for their length where only that is
    (`counted`)."""

    text: bool
    counted: bool


REPLIES: dict[Generated, Replies] = {
    "recorded": Replies(text=True, counted=False),
    "none": Replies(text=False, counted=False),
    "counted": Replies(text=False, counted=True),
    "text": Replies(text=True, counted=True),
}
"""`recorded`: the text where it is recorded, nothing elsewhere. `none`: nothing. `counted`: as many blocks as a reply
of the recorded length fills, which nobody reuses. `text`: the text where it is recorded or the next turn tells it (see
`with_next_turns`); where neither is so, its length counts if that is recorded."""


def turns_tell(requests: Sequence[TrafficRequest], end_token: int | None) -> bool:
    """Whether next turns may tell replies of which not even the length is recorded."""
    return end_token is not None and any(request.session_id is not None for request in requests)


def with_next_turns(
    requests: Sequence[TrafficRequest], block_size: int, end_token: int | None = None
) -> list[TrafficRequest]:
    """The requests with the replies that are not recorded themselves: what follows the prompt in the next turn, which
    is the next request that begins with this whole prompt. Where the length is not recorded either, a reply goes up to
    the `end_token`."""
    return [
        request if later is None or request.generated else _continued(request, later, block_size, end_token)
        for request, later in zip(requests, _next_turns(requests), strict=True)
    ]


def _next_turns(requests: Sequence[TrafficRequest]) -> Iterator[TrafficRequest | None]:
    """For each request the next one that begins with its whole prompt.

    Without a session, block ids are taken for hashes of all in front of them, as they are in traces that have no
    sessions; requests known by their tokens have no next turn then.
    """
    by_session: dict[str, list[int]] = {}
    for at, request in enumerate(requests):
        if request.session_id is not None:
            by_session.setdefault(request.session_id, []).append(at)
    place = {at: number for members in by_session.values() for number, at in enumerate(members)}
    following = _next_uses(requests)
    for at, request in enumerate(requests):
        if request.session_id is not None:
            number = place[at]
            later = by_session[request.session_id][number + 1 : number + 1 + LOOK_AHEAD]
        else:
            later = [following[at]] if at in following else []
        yield next((requests[other] for other in later if _begins_with(requests[other], request)), None)


def _next_uses(requests: Sequence[TrafficRequest]) -> dict[int, int]:
    """For requests without a session the next one that has the last full block of their prompts."""
    alone = [at for at, request in enumerate(requests) if request.session_id is None and request.runs]
    last_blocks = sorted({_last_block(requests[at]) for at in alone})
    found: dict[int, int] = {}
    users: dict[int, int] = {}
    for at in reversed(alone):
        request = requests[at]
        if (later := users.get(_last_block(request))) is not None:
            found[at] = later
        for first, last in pairs(request.runs or array("q")):
            for block in last_blocks[bisect_left(last_blocks, first) : bisect_right(last_blocks, last)]:
                users[block] = at
    return found


def _last_block(request: TrafficRequest) -> int:
    assert request.runs
    return request.runs[-1]


def _begins_with(later: TrafficRequest, request: TrafficRequest) -> bool:
    if request.namespace != later.namespace or request.num_prompt_tokens > later.num_prompt_tokens:
        return False
    if request.ids is not None and later.ids is not None:
        return later.ids[: len(request.ids)] == request.ids
    assert request.runs is not None and later.runs is not None
    return len(request.runs) > 0 and num_shared(request.runs, later.runs) == number_of_blocks(request.runs)


def _continued(
    request: TrafficRequest, later: TrafficRequest, block_size: int, end_token: int | None
) -> TrafficRequest:
    """With what follows the prompt in a later one as its reply, as far as the reply is as long."""
    start, count = request.num_prompt_tokens, request.num_generated_tokens
    if count is None and later.ids is not None and end_token is not None:
        rest = later.ids[start:]
        count = rest.index(end_token) + 1 if end_token in rest else None
    # The last token of a reply leaves nothing in the cache.
    if count is None or count < 2 or start + count - 1 > later.num_prompt_tokens:
        return request
    end = start + count - 1
    if later.ids is not None:
        return replace(request, generated=later.ids[start:end], num_generated_tokens=count)
    assert later.runs is not None
    return replace(request, generated_runs=cut(later.runs, start // block_size, end // block_size))
