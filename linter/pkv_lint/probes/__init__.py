"""What single requests and their template show without a second request to compare: probes, each taken once.

A probe renders a request again with one thing changed (another time, one more turn) or looks at where the characters of
its prompt came from. Requests of one shape (the same roles, tools or none) are probed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from pkv_lint.probes.clock import Clock, Granularity, find_clock
from pkv_lint.probes.entities import Escaped, find_entities
from pkv_lint.probes.fields import Spotted, broken_arguments, cache_markers
from pkv_lint.probes.next_turn import Broken, broken_next, reasoning_switch
from pkv_lint.probes.trials import Trials
from pkv_lint.probes.unprinted import Unprinted, find_unprinted
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.turns import Turn

__all__ = ["Broken", "Clock", "Escaped", "Granularity", "Probes", "Spotted", "Unprinted"]


class Probes:
    """Probes over a traffic. `alone` are the requests that no other can be held against.

    With the built-in layout nothing is said about a template: it is not the server's.
    """

    def __init__(self, turns: Sequence[Turn], alone: Sequence[Turn], renderer: Renderer) -> None:
        self._turns = turns
        self._trials = Trials(renderer, turns)
        self._alone = alone

    @cached_property
    def template_variables(self) -> frozenset[str]:
        """Names that the template of the first request takes from outside."""
        return next((self._trials.variables(turn) for turn in self._trials.templated), frozenset())

    @cached_property
    def clock(self) -> Clock | None:
        """Whether the prompt shows the time of the server, told by rendering at two times."""
        return find_clock(self._trials)

    @cached_property
    def next_turns(self) -> list[Broken]:
        """What requests that stand alone will lose of their prompt when their conversation goes on."""
        return [found for turn in self._trials.shapes_of(self._alone) for found in broken_next(self._trials, turn)]

    def reasoning_switch(self, turn: Turn) -> tuple[str, bool] | None:
        """The template argument, and its value, with which the thoughts in a request stay in the prompts of later
        turns."""
        return reasoning_switch(self._trials, turn)

    @cached_property
    def unprinted(self) -> list[Unprinted]:
        """Tools, documents and messages of which the template prints nothing, each kind once."""
        return find_unprinted(self._trials)

    @cached_property
    def escaped(self) -> Escaped | None:
        """The first text of a request that came out as HTML entities."""
        return find_entities(self._trials)

    @cached_property
    def doubled_bos(self) -> list[Turn]:
        """Requests whose prompt begins with the tokenizer's beginning-of-sequence token twice."""
        token = self._trials.bos
        return [turn for turn in self._turns if token is not None and list(turn.ids[:2]) == [token, token]]

    @cached_property
    def cache_markers(self) -> list[Spotted]:
        """The first marker of each request that has some."""
        return [spotted for turn in self._turns for spotted in cache_markers(turn)]

    @cached_property
    def broken_arguments(self) -> list[Spotted]:
        """Calls whose arguments the server replaces by an empty object."""
        return [spotted for turn in self._turns if turn.prompt.text is not None for spotted in broken_arguments(turn)]
