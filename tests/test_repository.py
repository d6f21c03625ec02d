"""What the repository promises about itself."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def tracked() -> list[Path]:
    """The files of the repository (in a copy without git, all that are not ignored there)."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


# Written in pieces, so that this file passes its own test.
FOREIGN = re.compile(
    "|".join(
        [
            r"(?<![\w.<])/" + r"(?:work|root)/",
            r"/tmp" + r"/w\b",
            r"\bshared " + r"machine\b",
            r"\bhelper [A-Z]\b",
        ]
    )
)


def test_files_speak_of_the_project_alone() -> None:
    found = []
    for path in tracked():
        if path.suffix in (".gz", ".png", ".zst") or path.name == "tokenizer.json":
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if FOREIGN.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


def commands() -> list[str]:
    return re.findall(r"^    (python3 -m venv .*)$", README, re.M)


def test_the_readme_has_two_commands_to_set_up() -> None:
    use, test = commands()
    assert "pip install ." in use and "pkv-lint examples/" in use
    assert "-c constraints.txt" in test and "[dev]" in test and "pytest" in test
    assert len(re.findall(r"pip install", README)) == 2


def test_ci_runs_the_line_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (pattern,) = re.findall(r"sed -n 's/(.*)/\\1/p' README.md", script)
    expression = pattern.replace(r"\(", "(").replace(r"\)", ")")
    assert re.findall(expression, README, re.M) == [commands()[1]]


def test_the_files_that_pages_name_are_there() -> None:
    missing = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        links = {page.parent / link for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text)}
        named = {
            ROOT / name for name in re.findall(r"\b(?:examples|scripts|benchmarks)/[\w./-]*\.(?:jsonl?|py)\b", text)
        }
        missing += [f"{page.relative_to(ROOT)}: {path}" for path in links | named if not path.exists()]
    assert missing == []


def test_every_page_of_the_documentation_is_in_its_index() -> None:
    docs = ROOT / "docs"
    links = {(docs / link).resolve() for link in re.findall(r"\]\(([^)#:]+\.md)", (docs / "README.md").read_text())}
    pages = {path.resolve() for path in docs.rglob("*.md")} - {(docs / "README.md").resolve()}
    assert {page for page in pages if page not in links and page.parent.name != "rules"} == set()


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def test_constraints_pin_all_that_the_tests_install() -> None:
    pins = pinned()
    open_: list[tuple[str, str]] = [("pkv-lint", "dev"), ("pkv-lint", "")]
    seen: set[tuple[str, str]] = set()
    missing = set()
    while open_:
        name, extra = open_.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        if name != "pkv-lint" and name not in pins:
            missing.add(name)
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        for text in requires:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                other = canonicalize_name(requirement.name)
                open_ += [(other, each) for each in ("", *requirement.extras)]
    assert missing == set()


def test_the_base_install_is_small() -> None:
    names = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    assert names <= set(
        ["click", "httpx", "huggingface-hub", "jinja2", "numpy", "pydantic", "tokenizers", "typing-extensions"]
    )


def test_the_changelog_knows_the_version() -> None:
    versions = re.findall(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert versions[0] == PROJECT["version"]


def test_the_hook_for_users() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["id"] == "pkv-lint" and hook["entry"].split()[0] in PROJECT["scripts"]
    for name, wanted in {
        "requests/a.json": True,
        "tests/traffic/day.jsonl": True,
        "agent.request.json": True,
        "package.json": False,
        "traffic.py": False,
    }.items():
        assert bool(re.search(hook["files"], name)) is wanted


def test_the_hooks_for_this_repository() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    assert {"ruff", "mypy", "lint-imports", "pkv-lint"} <= {hook["entry"].split()[0] for hook in hooks}


@pytest.mark.slow
def test_the_wheel(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "No matching distribution found for hatchling" in done.stderr:
        pytest.skip("no package index to build from")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {
        "pkv_lint",
        "pkv_sim",
        "pkv_engine",
        "pkv_kernels",
        "pkv_rules",
    }
    builtin = {name.rpartition("/")[2] for name in names if name.startswith("pkv_lint/prompt/builtin/")}
    assert {"layout.jinja", "tokenizer.json", "tokenizer_config.json"} <= builtin
    assert "pkv_lint/py.typed" in names
