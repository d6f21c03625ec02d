"""The time of a step as a linear function of what it computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal["fitted", "roofline"]


class StepLoad(NamedTuple):
    """What one step computes. A sequence with several new tokens is prefill, one with a single new token is decode: it
    is that kind of work, even where it is the end of a prompt.

    `prefill_token`: new tokens of prefill. `attention_pair`: pairs of such a token and a token that it attends to,
    itself included. `decode_sequence`: sequences that decode. `decode_context`: tokens that these attend to. The names
    are those of the coefficients.
    """

    prefill_token: int
    attention_pair: int
    decode_sequence: int
    decode_context: int

    @classmethod
    def of(cls, chunks: Iterable[tuple[int, int]]) -> StepLoad:
        """The load of a step that computes for each sequence (first position, number of new tokens)."""
        tokens = pairs = sequences = context = 0
        for first, new in chunks:
            if new == 1:
                sequences += 1
                context += first + 1
            else:
                tokens += new
                pairs += new * first + new * (new + 1) // 2
        return cls(tokens, pairs, sequences, context)


class Coefficients(NamedTuple):
    """Seconds for a step, and for each unit of its load. None is negative."""

    step: float
    prefill_token: float
    attention_pair: float
    decode_sequence: float
    decode_context: float


class Intake(NamedTuple):
    """Seconds that a request takes before its first step and behind it: for each one (HTTP), and for each token of its
    prompt, cached or not (rendering, tokenising, hashing)."""

    request: float = 0.0
    prompt_token: float = 0.0

    def seconds(self, num_prompt_tokens: int) -> float:
        return self.request + self.prompt_token * num_prompt_tokens


class Range(NamedTuple):
    """The smallest and the largest load of one step that a profile was fitted to."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Residuals:
    """How far a fitted profile is from what was measured, as shares of it, over so many `points`."""

    points: int
    median: float
    largest: float


@dataclass(frozen=True, slots=True)
class TimingProfile:
    """`model` and `device` are names for people; `valid` has ranges by the names of `StepLoad`, none for a roofline.
    `intake` is what a client's time has beside the engine's steps."""

    kind: Kind
    model: str
    device: str
    coefficients: Coefficients
    valid: Mapping[str, Range] = field(default_factory=dict)
    residuals: Residuals | None = None
    intake: Intake = field(default_factory=Intake)

    def seconds(self, load: StepLoad) -> float:
        """How long a step with this load takes."""
        step, prefill_token, attention_pair, decode_sequence, decode_context = self.coefficients
        return (
            step
            + prefill_token * load.prefill_token
            + attention_pair * load.attention_pair
            + decode_sequence * load.decode_sequence
            + decode_context * load.decode_context
        )


class Validity:
    """Counts the steps that lie outside what a profile was fitted to. A load of 0 is never outside."""

    def __init__(self, profile: TimingProfile) -> None:
        self._ranges = [
            (name, at, profile.valid[name]) for at, name in enumerate(StepLoad._fields) if name in profile.valid
        ]
        self._outside = dict.fromkeys(profile.valid, 0)
        self._steps = 0

    def add(self, load: StepLoad) -> None:
        self._steps += 1
        for name, at, valid in self._ranges:
            if load[at] and not valid.low <= load[at] <= valid.high:
                self._outside[name] += 1

    def notes(self) -> list[str]:
        """A sentence for each kind of load that lies outside."""
        return [
            f"{name} is outside what the timing was fitted to ({valid.low:,.0f} to {valid.high:,.0f} in a step) in "
            f"{self._outside[name]:,} of {self._steps:,} steps"
            for name, _, valid in self._ranges
            if self._outside[name]
        ]
