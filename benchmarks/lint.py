"""How fast requests are linted, against kvlint's `lint` on the same files.

1. A traffic of 2,000 requests of about 3,800 tokens in 250 sessions of 8 turns, every fourth with a clock in its system
   prompt.
2. One request of 20 KB with such a clock.
3. `pre-commit run --all-files` over 50 files of one request each, with nothing to find (kvlint has no such hook).

kvlint is installed into a temporary environment. All are whole processes with the Qwen3 vocabulary and template; they
take turns, medians are printed. The data are those of the tests (PKV_SHARED, or ../shared next to the repository).

    python benchmarks/lint.py [--runs N] [--requests N] [--alone]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.faults.sessions import paragraph, system_text, tool  # noqa: E402

DATA = Path(os.environ.get("PKV_SHARED", ROOT.parent / "shared")) / "data"
TURNS = 8


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--alone", action="store_true", help="without kvlint")
    options = parser.parse_args()
    if not DATA.is_dir():
        print("the data are not here (set PKV_SHARED)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        model = model_directory(home)
        kvlint = None if options.alone else install(home)
        traffic, single = home / "traffic.jsonl", home / "request.jsonl"
        write_traffic(traffic, options.requests)
        single.write_text(json.dumps(session(random.Random(0), clock=True)[TURNS // 2]) + "\n")
        for file in (traffic, single):
            compare(file, model, kvlint, options.runs)
        print(f"pkv-lint {traffic.name}: {peak_megabytes(lint(traffic, model)):.0f} MB at most")
        show("pre-commit run, 50 files", [timed(*pre_commit(home, model)) for _ in range(options.runs)])
    return 0


def compare(file: Path, model: Path, kvlint: str | None, runs: int) -> None:
    """Print how long both take for one file."""
    commands = {"pkv-lint": lint(file, model)}
    if kvlint is not None:
        commands["kvlint lint"] = [kvlint, "lint", str(file), "--model", str(model)]
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            seconds[name].append(timed(command))
    for name, values in seconds.items():
        show(f"{name} {file.name}", values)
    if len(seconds) == 2:
        one, other = (median(values) for values in seconds.values())
        print(f"pkv-lint takes {one / other:.2f} of the time, {other / one:.1f} times as fast")


def show(name: str, values: list[float]) -> None:
    print(f"{name}: median {median(values):.2f} s of {len(values)} ({min(values):.2f} to {max(values):.2f})")


def lint(file: Path, model: Path) -> list[str]:
    return [sys.executable, "-m", "pkv_lint.cli", str(file), "--model", str(model), "--fail-on", "never"]


def pre_commit(home: Path, model: Path) -> tuple[list[str], Path]:
    """A command that runs the hook over a repository, and the repository. Its environment is ours: making one takes an
    index of packages."""
    root = home / "repository"
    requests = root / "requests"
    if not root.exists():
        requests.mkdir(parents=True)
        for number in range(50):
            body = session(random.Random(number), clock=False)[TURNS // 2]
            (requests / f"{number}.json").write_text(json.dumps(body))
        hook = {
            "id": "pkv-lint",
            "name": "pkv-lint",
            "entry": f"{sys.executable} -m pkv_lint.cli --offline --model {model}",
            "language": "system",
            "files": "^requests/",
            "require_serial": True,
        }
        config = {"repos": [{"repo": "local", "hooks": [hook]}]}
        (root / ".pre-commit-config.yaml").write_text(json.dumps(config))  # JSON is YAML
        subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
        subprocess.run(["git", "add", "."], cwd=root, check=True)
    return [sys.executable, "-m", "pre_commit", "run", "--all-files"], root


def model_directory(home: Path) -> Path:
    model = home / "model"
    shutil.copytree(DATA / "tokenizers" / "qwen3", model, copy_function=shutil.copyfile)
    model.chmod(0o755)
    shutil.copyfile(DATA / "templates" / "Qwen-Qwen3-0.6B.jinja", model / "chat_template.jinja")
    (model / "config.json").write_text('{"model_type": "qwen3"}')
    return model


def write_traffic(path: Path, count: int) -> None:
    """Sessions that take turns, as a server sees them. Bare bodies with a `session_id`, which both tools read."""
    sessions = [session(random.Random(number), clock=number % 4 == 0) for number in range(max(1, count // TURNS))]
    with path.open("w") as file:
        for turn in range(TURNS):
            for number, bodies in enumerate(sessions):
                file.write(json.dumps({"session_id": f"s{number}", **bodies[turn]}) + "\n")


def session(rng: random.Random, *, clock: bool) -> list[dict[str, Any]]:
    head = system_text(rng)
    tools = [tool(rng, f"tool_{index}") for index in range(6)]
    history: list[dict[str, Any]] = []
    bodies = []
    for turn in range(TURNS):
        history = [*history, {"role": "user", "content": paragraph(rng, 12)}]
        system = f"{head}\nCurrent time: 2026-05-11 09:{turn:02}:07" if clock else head
        bodies.append({"model": "m", "messages": [{"role": "system", "content": system}, *history], "tools": tools})
        history = [*history, {"role": "assistant", "content": paragraph(rng, 24)}]
    return bodies


def install(home: Path) -> str:
    venv.create(home / "peer", with_pip=True)
    subprocess.run([home / "peer" / "bin" / "pip", "install", "-q", "kvlint"], check=True)
    return str(home / "peer" / "bin" / "kvlint")


def timed(command: list[str], folder: Path | None = None) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)
    if done.returncode not in (0, 1) or (folder and done.returncode):
        raise SystemExit(f"{command[0]} failed: {(done.stdout + done.stderr).strip()[-400:]}")
    return time.perf_counter() - start


def environment() -> dict[str, str]:
    return {**{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}, "HF_HUB_OFFLINE": "1"}


def peak_megabytes(command: list[str]) -> float:
    """The resident memory of one run. Children of this process count together, so a process of its own measures it."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, env=environment())
    unit = 1 if sys.platform == "darwin" else 1024
    return int(done.stdout) * unit / 1e6


if __name__ == "__main__":
    sys.exit(main())
