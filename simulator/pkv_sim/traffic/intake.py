"""How a file of traffic is read, and what is taken from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.traffic import TrafficLine
from pkv_sim.progress import Progress, silently
from pkv_sim.traffic.workload import Refused, TrafficRequest

LONGEST = 1 << 26
"""More tokens than this no model takes in one sequence."""


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
