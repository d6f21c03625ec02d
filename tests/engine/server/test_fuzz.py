"""Whatever fits the description of the API, or nearly does, is answered without a failure of the server."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    schemathesis = pytest.importorskip("schemathesis")

EXAMPLES = 30


@pytest.fixture(scope="module")
def server(serving) -> Iterator:
    with serving(max_model_len=200) as running:
        yield running


def fuzz(server, examples: int) -> Counter[tuple[str, int]]:
    """The answers, by operation and status. Half of the bodies name the served model, so that some are generated."""
    schema = schemathesis.openapi.from_dict(server.client.get("/openapi.json").json())
    answers: Counter[tuple[str, int]] = Counter()

    def check(case) -> None:
        if isinstance(case.body, dict) and len(answers) % 2:
            case.body["model"] = None
        response = case.call(base_url=server.url)
        answers[case.operation.label, response.status_code] += 1
        assert response.status_code < 500, (case.body, response.text)

    every = settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    for operation in schema.get_all_operations():
        if operation.ok().body:
            for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
                every(given(operation.ok().as_strategy(generation_mode=mode))(check))()
    return answers


def test_no_server_errors(server) -> None:
    answers = fuzz(server, EXAMPLES)
    for path in ("chat/completions", "completions"):
        assert answers[f"POST /v1/{path}", 200] and answers[f"POST /v1/{path}", 400], answers
    server.until(lambda: server.blocks_in_use == 0 and server.service.num_requests == 0)
