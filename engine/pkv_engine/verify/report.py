"""The outcome of a replay: each request with what was predicted, reported and measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Literal

from pkv_engine.verify.asking import Answer
from pkv_engine.verify.faults import Fault
from pkv_engine.verify.prediction import Cache
from pkv_engine.verify.prompts import PromptDifference
from pkv_engine.verify.questions import Question
from pkv_engine.verify.replay import Pace
from pkv_engine.verify.server import DEFAULT_STEP, Counters, Server
from pkv_engine.verify.signatures import Signature
from pkv_lint.prompt.errors import InputError
from pkv_sim.simulation import share
from pkv_sim.timing.alone import Alone
from pkv_sim.timing.timing_profile import TimingProfile
from pkv_sim.traffic.workload import Refused

Status = Literal["as predicted", "differs", "not reported", "not predicted", "fault"]
Reporting = Literal["reported", "off", "not reported"]


@dataclass(frozen=True, slots=True)
class Row:
    """One request. Tokens are those of the prompt: `predicted` and `reported` are cached ones, None where there is no
    number. `predicted_ttft` is in seconds, None without a timing profile. `other_prompt` tells that the server computed
    another prompt than the one rendered here."""

    question: Question
    answer: Answer
    predicted: int | None
    reported: int | None
    predicted_ttft: float | None = None
    other_prompt: bool = False

    @property
    def status(self) -> Status:
        if self.answer.fault is not None:
            return "fault"
        if self.reported is None:
            return "not reported"
        if self.predicted is None:
            return "not predicted"
        return "as predicted" if self.predicted == self.reported else "differs"

    @property
    def index(self) -> int:
        """The place of the request in its file, from 0."""
        return self.question.request.index

    @property
    def session_id(self) -> str | None:
        return self.question.request.session_id

    @property
    def prompt_tokens(self) -> int:
        """As the server counts them, else as counted here."""
        usage = self.answer.usage
        told = usage.prompt_tokens if usage is not None else None
        return told or self.question.request.num_prompt_tokens


@dataclass(frozen=True)
class Report:
    """`counted` is what the server's own counters say of the time of the replay, `warm` tells that its cache may have
    held something before, `notes` what makes the prediction approximate."""

    name: str
    url: str
    server: Server
    cache: Cache
    pace: Pace
    rows: tuple[Row, ...]
    reporting: Reporting
    refused: tuple[Refused, ...] = ()
    unusable: tuple[InputError, ...] = ()
    warm: bool = True
    counted: Counters | None = None
    prompt_differences: tuple[PromptDifference, ...] = ()
    signatures: tuple[Signature, ...] = ()
    timing_notes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def statuses(self) -> Counter[Status]:
        return Counter(row.status for row in self.rows)

    @cached_property
    def faults(self) -> dict[Fault, list[Row]]:
        """The requests without an answer by what was wrong, the most frequent first."""
        found: dict[Fault, list[Row]] = {}
        for row in self.rows:
            if row.answer.fault is not None:
                found.setdefault(row.answer.fault, []).append(row)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    @cached_property
    def compared(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.status in ("as predicted", "differs"))

    @cached_property
    def other_prompts(self) -> int:
        return sum(row.other_prompt for row in self.rows)

    @property
    def prompt_tokens(self) -> int:
        return sum(row.prompt_tokens for row in self.compared)

    @property
    def predicted_tokens(self) -> int:
        return sum(row.predicted or 0 for row in self.compared)

    @property
    def reported_tokens(self) -> int:
        return sum(row.reported or 0 for row in self.compared)

    @property
    def hit_rate(self) -> float:
        """Reported cached tokens over prompt tokens."""
        return share(self.reported_tokens, self.prompt_tokens)

    @cached_property
    def ttft(self) -> float | None:
        """The median time to the first token in seconds."""
        measured = [row.answer.ttft for row in self.rows if row.answer.ttft is not None]
        return median(measured) if measured else None

    @cached_property
    def ttft_errors(self) -> list[float]:
        """The relative error of each predicted time to the first token."""
        return [
            abs(row.predicted_ttft - row.answer.ttft) / row.answer.ttft
            for row in self.rows
            if row.predicted_ttft is not None and row.answer.ttft
        ]

    @cached_property
    def total(self) -> tuple[int, int] | None:
        """Predicted and counted hits of the whole replay, where the server reports none for single requests."""
        known = [row.predicted for row in self.rows if row.answer.fault is None]
        if self.compared or self.counted is None or not known or None in known:
            return None
        return sum(hit or 0 for hit in known), self.counted.hits

    @property
    def approximate(self) -> bool:
        return bool(self.notes)

    @property
    def exit_status(self) -> int:
        """0: all as predicted, 1: some prediction failed, 2: nothing could be compared."""
        if not self.compared and self.total is None:
            return 2
        equal = not self.statuses["differs"] and (self.total is None or self.total[0] == self.total[1])
        return 0 if equal and not self.other_prompts else 1


def with_times(report: Report, timing: TimingProfile) -> Report:
    """The report with the predicted time to the first token of each request whose hit is predicted. Only requests that
    ran alone have one: that of others depends on what ran beside them."""
    if not report.pace.sequential:
        return replace(report, timing_notes=("only those of requests that run alone are predicted",))
    budget = report.server.max_num_batched_tokens or DEFAULT_STEP
    alone = Alone(timing, budget)
    rows = [
        row
        if row.predicted is None or row.answer.ttft is None
        else replace(row, predicted_ttft=alone.ttft(row.prompt_tokens, row.predicted))
        for row in report.rows
    ]
    return replace(report, rows=tuple(rows), timing_notes=tuple(alone.notes()))


def reporting_of(answers: Sequence[Answer], server: Server) -> Reporting:
    """Whether the server reports cached tokens of single requests. It is off where the flag for it is known and no
    answer has any."""
    usages = [answer.usage for answer in answers if answer.usage is not None]
    if any(usage.cached_tokens is not None for usage in usages):
        return "reported"
    if server.engine == "sglang" and server.cache_report:
        return "reported"
    return "off" if server.details_flag is not None else "not reported"


def reported_tokens(answer: Answer, server: Server, reporting: Reporting) -> int | None:
    """The cached tokens that the server reports for a request. SGLang leaves the details out where there are none."""
    if answer.fault is not None or answer.usage is None or reporting != "reported":
        return None
    if answer.usage.cached_tokens is None and server.engine == "sglang":
        return 0
    return answer.usage.cached_tokens
