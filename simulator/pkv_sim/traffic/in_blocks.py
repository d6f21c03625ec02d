"""The requests of a workload in blocks: as the fast core takes them, and as chains that can be named anywhere."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from pkv_sim.fast.prefix_tree import BlockRequest
from pkv_sim.fast.run_tree import BlockRunTree
from pkv_sim.fast.token_tree import TokenTree
from pkv_sim.traffic.generated import Replies
from pkv_sim.traffic.runs import pairs
from pkv_sim.traffic.workload import TrafficRequest


def in_blocks_of(
    requests: Sequence[TrafficRequest], block_size: int, replies: Replies
) -> tuple[TokenTree | BlockRunTree, list[BlockRequest]]:
    """Requests as the fast core takes them, and the tree that they are in."""
    if requests and requests[0].ids is None:
        runs = BlockRunTree(block_size)
        return runs, [_by_runs(request, runs, replies) for request in requests]
    tokens = TokenTree(block_size)
    return tokens, [_by_tokens(request, tokens, replies) for request in requests]


def _by_tokens(request: TrafficRequest, tree: TokenTree, replies: Replies) -> BlockRequest:
    assert request.ids is not None
    # The last sampled token has no KV, so any will do.
    output = request.generated + array("i", [0]) if request.generated and replies.text else ()
    counted = request.num_generated_tokens or 0 if replies.counted else 0
    made = tree.request(request.ids, output, num_output_tokens=counted, namespace=request.namespace)
    return made if request.reads_cache else made._replace(max_hit=0)


def _by_runs(request: TrafficRequest, tree: BlockRunTree, replies: Replies) -> BlockRequest:
    assert request.runs is not None
    prompt = request.num_prompt_tokens
    generated = request.num_generated_tokens or 0 if replies.counted else 0
    if not request.generated_runs:
        return tree.request(pairs(request.runs), prompt, num_output_tokens=generated)
    size = tree.block_size
    whole = tree.request(pairs(request.runs + request.generated_runs), prompt + generated - 1)
    return whole._replace(max_hit=(prompt - 1) // size, prompt_blocks=prompt // size, num_prompt_tokens=prompt)
