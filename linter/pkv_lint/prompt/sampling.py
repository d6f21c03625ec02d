"""Whether a server accepts how a request wants its answer sampled: nothing that changes the prompt, but it refuses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.validation import refused

GREEDY = 1e-5
"""A temperature below this is taken as zero (`sampling_params.py:_SAMPLING_EPS`)."""


def check_sampling(body: Mapping[str, Any]) -> None:
    """Raises RenderError for a validated body that vLLM refuses when it makes its sampling parameters, which it does
    after the prompt (`sampling_params.py:SamplingParams._verify_args`)."""
    if (n := body.get("n")) is not None and n < 1:
        raise complaint("n", f"must be at least 1, got {n}")
    for name in ("presence_penalty", "frequency_penalty"):
        if not -2 <= (value := number(body, name, 0)) <= 2:
            raise complaint(name, f"must be in [-2, 2], got {value}")
    if not math.isfinite(value := number(body, "repetition_penalty", 1)):
        raise complaint("repetition_penalty", f"must be a finite number, got {value}")
    if value <= 0:
        raise complaint("repetition_penalty", f"must be greater than zero, got {value}")
    temperature = number(body, "temperature", 1)
    for right, wanted in (
        (math.isfinite(temperature), "a finite number"),
        (temperature >= 0, "non-negative"),
        (temperature <= 2, "in [0, 2]"),
    ):
        if not right:
            raise refused(f"temperature must be {wanted}, got {temperature}.", "temperature", temperature)
    if not 0 < (value := number(body, "top_p", 1)) <= 1:
        raise refused(f"top_p must be in (0, 1], got {value}.", "top_p", value)
    if (top_k := body.get("top_k") or 0) < -1:
        raise complaint("top_k", f"must be 0 (disable), or at least 1, got {top_k}")
    if not 0 <= (value := number(body, "min_p", 0)) <= 1:
        raise complaint("min_p", f"must be in [0, 1], got {value}")
    check_lengths(body)
    wrong = [token for token in body.get("logit_bias") or {} if not is_integer(token)]
    if wrong:
        raise refused(
            f"logit_bias contains key(s) that cannot be converted to integer token IDs: {wrong!r}", "logit_bias", wrong
        )
    stop = body.get("stop")
    if "" in (stop if isinstance(stop, list) else [stop]):
        raise complaint("stop", "cannot contain an empty string")
    if temperature < GREEDY and (n or 1) > 1:
        raise complaint("n", f"must be 1 when using greedy sampling, got {n}")


def check_lengths(body: Mapping[str, Any]) -> None:
    most = body.get("max_completion_tokens")
    if most is None:
        most = body.get("max_tokens")
    if most is not None and most < 1:
        raise refused(f"max_tokens must be at least 1, got {most}.", "max_tokens", most)
    if (least := body.get("min_tokens", 0)) < 0:
        raise complaint("min_tokens", f"must be greater than or equal to 0, got {least}")
    if most is not None and least > most:
        raise complaint("min_tokens", f"must be less than or equal to max_tokens={most}, got {least}")


def is_integer(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def number(body: Mapping[str, Any], name: str, default: float) -> float:
    value = body.get(name)
    return float(default if value is None else value)


def complaint(name: str, what: str) -> RenderError:
    return RenderError(f"{name} {what}.", path=name)
