"""How far prompts can be followed back to the request, measured on the requests of the golden vectors.

    python benchmarks/provenance.py [--every N] [--letters N]

For every vector that a chat template renders: is the traced text the plain one, how many characters have an origin, and
is the origin right? The last is checked independently of how origins are found. One letter of one string in the request
is changed, the request is rendered plainly, and the characters that changed must be those that were said to come from
that letter. Where the letter steers the template, so that the prompt gets another length or is refused, nothing can be
compared (undecided). Strings that are there to steer (`role`, `type`, the names in `required`) are left alone. The data
are those of the tests (PKV_SHARED, or ../shared next to the repository).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pkv_lint.prompt.errors import PkvError
from pkv_lint.prompt.origin import Origin
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.source import format_path
from pkv_lint.prompt.template import ChatTemplates, stated_template
from pkv_lint.prompt.tokenizer import Tokenizer

NOON = datetime(2026, 7, 1, 12, 0)
SHOWN = 10
STEERING = ("role", "type")


@dataclass
class Report:
    """Counts over all vectors; seconds are CPU time of this thread."""

    rendered: int = 0
    other_text: int = 0
    refused: int = 0
    characters: Counter[str] = field(default_factory=Counter)
    right: int = 0
    wrong: int = 0
    undecided: int = 0
    plain_seconds: float = 0.0
    traced_seconds: float = 0.0
    examples: list[str] = field(default_factory=list)

    @property
    def followed(self) -> float:
        """The share of characters whose origin is known."""
        total = self.characters.total()
        return 1 - self.characters["computed"] / total if total else 1.0

    @property
    def agreement(self) -> float:
        decided = self.right + self.wrong
        return self.right / decided if decided else 1.0

    def __str__(self) -> str:
        total = max(self.characters.total(), 1)
        kinds = ", ".join(f"{kind} {count / total:.2%}" for kind, count in self.characters.most_common())
        return "\n".join(
            [
                f"{self.rendered} prompts ({self.refused} requests refused), {total:,} characters: {kinds}",
                f"traced text equal to the plain one  {self.rendered - self.other_text} of {self.rendered}",
                f"characters with an origin           {self.followed:.3%}",
                f"one-letter check                    {self.agreement:.3%} of {self.right + self.wrong:,} decided "
                f"({self.wrong} wrong, {self.undecided:,} undecided)",
                f"time, traced / plain                {self.traced_seconds / max(self.plain_seconds, 1e-9):.1f}",
                *self.examples[:SHOWN],
            ]
        )


def vectors(folder: Path, every: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every `every`-th vector that a chat template renders, with the name of its file."""
    number = 0
    for path in sorted(folder.glob("*.jsonl.gz")):
        if path.name.startswith(("mode.", "flags.", "api.")):
            continue
        with gzip.open(path, "rt") as lines:
            for line in lines:
                number += 1
                if number % every == 0:
                    vector = json.loads(line)
                    if not vector.get("server_args") and "prompt_token_ids" in vector:
                        yield path.name, vector


def strings(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The strings in a JSON value with their places."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from strings(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from strings(child, (*path, index))


def replaced(value: Any, path: Sequence[str | int], new: str) -> Any:
    """A copy of a JSON value with another string at one place."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def said(origins: Sequence[Origin]) -> dict[str, list[Origin]]:
    """The runs that came from strings, by path."""
    runs: dict[str, list[Origin]] = {}
    for origin in origins:
        if origin.kind == "value":
            runs.setdefault(origin.source.where, []).append(origin)
    return runs


def places(runs: Sequence[Origin], offset: int) -> set[int]:
    """The characters of the prompt that came from one character of a string."""
    found: set[int] = set()
    for run in runs:
        if not run.linear and run.offset == offset:
            found.update(range(run.start, run.end))
        elif run.linear and run.offset <= offset < run.offset + run.end - run.start:
            found.add(run.start + offset - run.offset)
    return found


def check(report: Report, renderer: Renderer, name: str, vector: dict[str, Any], letters: int) -> None:
    """Add one vector to the report; `letters` are changed in each string of it."""
    now = datetime.fromisoformat(vector["now"]) if "now" in vector else NOON
    request = vector["request"]
    try:
        prompt = renderer.render(request, now)
    except PkvError:
        report.refused += 1
        return
    if prompt.text is None:
        return
    origins = prompt.origins
    begin = time.thread_time()
    again = renderer.render(request, now)  # by now the vocabulary knows the text, and the template is compiled
    plain = time.thread_time()
    assert again.origins == origins
    report.traced_seconds += time.thread_time() - plain
    report.plain_seconds += plain - begin
    report.rendered += 1
    # A trace whose text differs is given up: then nothing has an origin.
    if len(origins) == 1 and origins[0].kind == "computed":
        report.other_text += 1
    for origin in origins:
        report.characters[origin.kind] += origin.end - origin.start
    by_path = said(origins)
    for path, text in strings(request):
        if path[-1] in STEERING or path[-2:-1] == ("required",):
            continue
        where = format_path(path)
        places_of_letters = [i for i, char in enumerate(text) if char.isascii() and char.isalpha()]
        for offset in places_of_letters[:: max(1, len(places_of_letters) // letters)][:letters]:
            letter = "q" if text[offset] != "q" else "z"
            changed = replaced(request, path, text[:offset] + letter + text[offset + 1 :])
            try:
                other = renderer.render(changed, now).text
            except PkvError:
                other = None
            if other is None or len(other) != len(prompt.text):
                report.undecided += 1
                continue
            moved = {i for i, (before, after) in enumerate(zip(prompt.text, other, strict=True)) if before != after}
            expected = places(by_path.get(where, ()), offset)
            if moved == expected:
                report.right += 1
            else:
                report.wrong += 1
                differing = f"changed {sorted(moved)[:4]}, said {sorted(expected)[:4]}"
                report.examples.append(f"  {name} {vector['case']}: {where}[{offset}] {differing}")


def measure(data: Path, every: int = 1, letters: int = 2) -> Report:
    """Check every `every`-th golden vector in the folder of real data."""
    report = Report()
    vocabulary = Tokenizer.load(data / "tokenizers" / "qwen3")
    renderer = None
    loaded = ""
    for name, vector in vectors(data / "chat_golden", every):
        if renderer is None or vector["template"] != loaded:
            loaded = vector["template"]
            template = stated_template(str(data / "templates" / f"{loaded}.jinja"))
            renderer = Renderer(ChatTemplates(template), vocabulary)
        check(report, renderer, name, vector, letters)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="check every N-th vector only")
    parser.add_argument("--letters", type=int, default=2, help="letters to change in each string")
    shared = Path(os.environ.get("PKV_SHARED", Path(__file__).parent.parent.parent / "shared"))
    parser.add_argument("--data", type=Path, default=shared / "data")
    options = parser.parse_args()
    print(measure(options.data, options.every, options.letters))


if __name__ == "__main__":
    main()
