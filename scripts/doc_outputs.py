"""Keep the outputs shown in README.md and docs/ equal to what the commands print.

    python scripts/doc_outputs.py            # write them
    python scripts/doc_outputs.py --check    # say what is out of date, exit status 1

A block of output follows a comment that names its command, and how many lines of it are shown:

    <!-- output of: pkv-lint examples/agent.jsonl -->
    <!-- first 12 lines of: pkv-render examples/agent_request.json --show blocks -->
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = {"pkv-lint": "pkv_lint.cli", "pkv-render": "pkv_lint.render_cli", "pkv-sim": "pkv_sim.cli"}
BLOCK = re.compile(
    r"(?P<head><!-- (?:output|first (?P<lines>\d+) lines) of: (?P<command>[^\n]*?) -->\n```[a-z]*\n)"
    r"(?P<output>.*?)(?=^```$)",
    re.S | re.M,
)


def main(argv: Sequence[str] | None = None) -> int:
    check = "--check" in (sys.argv[1:] if argv is None else argv)
    stale = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        new = BLOCK.sub(lambda block: block["head"] + output(block["command"], block["lines"]), text)
        if new != text:
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(new, encoding="utf-8")
    if stale:
        print(f"{'out of date' if check else 'written'}: {', '.join(stale)}")
    return int(check and bool(stale))


def output(command: str, lines: str | None) -> str:
    """What the command prints in a pipe, 120 columns wide; what goes to stderr stands first."""
    program, *arguments = shlex.split(command)
    environment = {**os.environ, "COLUMNS": "120", "PYTHONUTF8": "1", "TZ": "UTC"}
    done = subprocess.run(
        [sys.executable, "-m", PROGRAMS[program], *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    text = (done.stderr + done.stdout).rstrip("\n") + "\n"
    return "".join(text.splitlines(keepends=True)[: int(lines)]) + "...\n" if lines else text


if __name__ == "__main__":
    sys.exit(main())
