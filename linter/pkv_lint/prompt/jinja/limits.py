"""What a chat template may cost. Templates and requests are untrusted: none may hang the process or eat its memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set, ValuesView
from dataclasses import dataclass
from sys import getsizeof
from typing import Any, TypeVar

from jinja2 import TemplateRuntimeError, Undefined
from jinja2.utils import Namespace

T = TypeVar("T")

_ATOMS = frozenset((int, float, bool, type(None), Undefined))
_CHECK_EVERY = 1 << 20
"""Units of work between two looks at the clock. A unit is about a byte that is made or a nanosecond that is spent."""
_SMALL = 1024
"""Results up to this many bytes are covered by what each turn of a loop is charged."""

_CONTAINER = 64
"""What a list or object weighs by itself."""
_NESTED_TUPLES = 1000
"""CPython hashes nested tuples by a recursion that overflows the C stack."""


class LimitError(TemplateRuntimeError):
    """The template was stopped."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`seconds` to compile and render, and `seconds_per_message` more for each message of the request (one takes 10 to
    100 microseconds); `memory` bytes by which the process may grow meanwhile; `characters` of one text (a prompt of a
    million tokens has about five million); `items` of one list; `source` characters of the template."""

    seconds: float = 4.0
    seconds_per_message: float = 0.0002
    memory: int = 400_000_000
    characters: int = 32_000_000
    items: int = 4_000_000
    source: int = 80_000


class Meter:
    """Watches one render. Every operation that may cost much reports here before or after it is done.

    The clock and the memory of the process are looked at after each million units of reported work. So the reports need
    not be exact: too much only makes it look more often. The clock is that of the thread, so that a busy machine makes
    no template fail.
    """

    __slots__ = ("_deadline", "_due", "_memory", "_seconds", "_spent", "limits")

    def __init__(self, limits: Limits, seconds: float | None = None) -> None:
        """`seconds` instead of those of the limits."""
        self.limits = limits
        self._seconds = limits.seconds if seconds is None else seconds
        self._deadline = time.thread_time() + self._seconds
        self._memory: int | None = None  # read at the first look, which most renders never come to
        self._spent = 0
        self._due = _CHECK_EVERY

    def tick(self, work: int) -> None:
        self._spent += work
        if self._spent > self._due:
            self._look()

    def ticked(self, work: int) -> bool:
        """`tick` as an expression that is true."""
        self.tick(work)
        return True

    def _look(self) -> None:
        self._due = self._spent + _CHECK_EVERY
        if time.thread_time() > self._deadline:
            raise LimitError(f"the chat template was stopped: it takes more than {self._seconds:.1f} seconds")
        memory = resident_bytes()
        if self._memory is None:
            self._memory = memory
        if memory - self._memory > self.limits.memory:
            raise LimitError(
                f"the chat template was stopped: it takes more than {self.limits.memory // 1_000_000} MB of memory"
            )

    def text(self, length: int) -> None:
        """A text of so many characters is about to be made."""
        if length > self.limits.characters:
            raise LimitError(
                f"the chat template was stopped: it makes a text of more than {self.limits.characters:,} characters"
            )
        if length > _SMALL:
            self.tick(length)

    def items(self, count: int) -> None:
        """A list of so many items is about to be made."""
        if count > self.limits.items:
            raise LimitError(f"the chat template was stopped: it makes a list of more than {self.limits.items:,} items")
        self.tick(16 * count)

    def number(self, bits: int) -> None:
        """An integer of so many bits is about to be made."""
        if bits > 1 << 16:
            raise LimitError(f"the chat template was stopped: it makes a number of {bits:,} bits")

    def steps(self, count: int) -> None:
        """So many steps of C code, about a nanosecond each, are about to be made without a chance to stop."""
        if count > 1_000_000_000:
            raise LimitError("the chat template was stopped: one operation takes more than a billion steps")
        self.tick(count)

    def made(self, value: T) -> T:
        """The result of an operation that cannot be much larger than its operands."""
        if value.__class__ is str and len(value) < _SMALL:  # type: ignore[arg-type]  # the class says that it has a length
            return value
        size = getsizeof(value)
        if size > _SMALL:
            if isinstance(value, (str, bytes)):
                self.text(len(value))
            elif isinstance(value, (list, tuple)):
                self.items(len(value))
            elif isinstance(value, int):
                self.number(8 * size)
            self.tick(size)
        return value

    def weigh(self, value: Any) -> int:
        """How much there is to print, compare or hash in a value, counting what it contains once per mention.

        A list that holds another one twice, forty times over, is small in memory and endless on paper.
        """
        if type(value) in _ATOMS:
            return 8
        if isinstance(value, str):
            return len(value)
        room = self.limits.characters
        weight = reported = nested = 0
        stack = [value]
        while stack:
            container = stack.pop()
            if type(container) is dict:
                children = container.values()
                try:
                    weight += len("".join(container))
                except TypeError:  # not all names are strings
                    stack.append([*container])
            else:
                children = children_of(container)
                if isinstance(container, tuple):
                    nested += sum(isinstance(child, tuple) for child in children)
            weight += _CONTAINER + 8 * len(children)
            if weight <= room:
                for child in children:
                    kind = type(child)
                    if kind is str:
                        weight += len(child)
                    elif kind not in _ATOMS:
                        stack.append(child)
            if weight > room:
                raise LimitError(
                    f"the chat template was stopped: it prints or compares a value of more than {room:,} characters"
                )
            if nested > _NESTED_TUPLES:
                raise LimitError("the chat template was stopped: it nests tuples too deeply")
            if weight - reported > _CHECK_EVERY:
                self.tick(weight - reported)
                reported = weight
        self.tick(weight - reported)
        return weight

    def weighed(self, value: T) -> T:
        """The value, after `weigh`."""
        if isinstance(value, str):
            if len(value) > _SMALL:
                self.tick(len(value))
        elif type(value) not in _ATOMS:
            self.weigh(value)
        return value

    def listed(self, values: Iterable[T]) -> list[T]:
        """`list(values)`."""
        if isinstance(values, (list, tuple, str, Mapping, Set)):
            self.items(len(values))
            return list(values)
        return list(self.ticking(values))

    def ticking(self, values: Iterable[T]) -> Iterator[T]:
        for count, value in enumerate(values):
            if not count & 63:
                self.tick(1 << 13)
            yield value


def children_of(value: Any) -> Any:
    """What the `repr` of a container prints; nothing for everything else."""
    if type(value) is list:
        return value
    if isinstance(value, str):
        return (str.__str__(value),)
    if isinstance(value, (list, tuple, Set, ValuesView)):
        return value
    if isinstance(value, Mapping):
        return (*value, *value.values())
    if isinstance(value, Namespace):
        return (value._Namespace__attrs,)
    return ()


def _resident_bytes() -> Callable[[], int]:
    """A function for the bytes that the process has in use (or had at most, where the system tells no more)."""
    statm = "/proc/self/statm"
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        with open(statm, "rb"):
            pass
    except (OSError, AttributeError, ValueError):
        pass
    else:

        def current() -> int:
            with open(statm, "rb", buffering=0) as file:
                return int(file.read(64).split()[1]) * page

        return current
    try:
        import resource
    except ImportError:  # Windows: only the clock and the size of single results are watched there
        return lambda: 0
    unit = 1 if os.uname().sysname == "Darwin" else 1024
    return lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


resident_bytes = _resident_bytes()
