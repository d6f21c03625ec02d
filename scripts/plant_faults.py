"""Plant faults at random into clean sessions and count how often the linter names them.

    python scripts/plant_faults.py [COUNT] [--seed N] [--model DIR | --chat-template FILE --tokenizer DIR]

Without a model the built-in layout is used. Prints a line for every verdict that is wrong, then the counts.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.faults.checking import check
from tests.faults.planting import PLANTS
from tests.faults.sessions import clean_session

from pkv_lint.prompt.renderer import Renderer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model")
    parser.add_argument("--chat-template")
    parser.add_argument("--tokenizer")
    options = parser.parse_args()
    renderer = Renderer.load(options.model, options.chat_template, options.tokenizer)
    total: Counter[str] = Counter()
    wrong: dict[str, Counter[str]] = {name: Counter() for name in ("blamed", "cost", "noise")}
    number = options.seed
    while sum(total.values()) < options.count:
        rng = random.Random(number)
        number += 1
        kind = rng.choice(list(PLANTS))
        bodies = clean_session(rng, rng.randint(3, 8))
        try:
            planted = PLANTS[kind](rng, bodies)
        except LookupError:
            continue  # this session has no place for it
        verdict = check(planted, renderer, rng.choice([16, 16, 32, 128]))
        total[kind] += 1
        for name, counts in wrong.items():
            complaint = getattr(verdict, name)
            if complaint:
                counts[kind] += 1
                print(f"seed {number - 1}: {kind}: {name}: {complaint}")
    count = sum(total.values())
    print(f"{count} faults of {len(total)} kinds")
    for name, what in (
        ("blamed", "code and path right"),
        ("cost", "tokens_lost equal"),
        ("noise", "nothing else said"),
    ):
        print(f"{what}: {count - wrong[name].total()} of {count} ({1 - wrong[name].total() / count:.2%})")
    return int(wrong["cost"].total() > 0 or wrong["blamed"].total() > 0.02 * count)


if __name__ == "__main__":
    sys.exit(main())
