"""The time to first token of a request that nobody disturbs."""

from __future__ import annotations

from pkv_sim.timing.timing_profile import StepLoad, TimingProfile, Validity


class Alone:
    """Prompts that are computed by themselves, in steps of at most `max_num_batched_tokens`."""

    def __init__(self, timing: TimingProfile, max_num_batched_tokens: int) -> None:
        self._timing = timing
        self._chunk = max_num_batched_tokens
        self._validity = Validity(timing)

    def ttft(self, num_prompt_tokens: int, num_cached_tokens: int) -> float:
        """Seconds until the first output token."""
        seconds = self._timing.intake.seconds(num_prompt_tokens)
        for first in range(num_cached_tokens, num_prompt_tokens, self._chunk):
            load = StepLoad.of([(first, min(self._chunk, num_prompt_tokens - first))])
            self._validity.add(load)
            seconds += self._timing.seconds(load)
        return seconds

    def notes(self) -> list[str]:
        """What of this lies outside what the timing was fitted to."""
        return self._validity.notes()
