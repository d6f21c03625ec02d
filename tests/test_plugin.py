"""Rules of other packages: the example is installed, run and tested; those that do not work are named in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pkv_lint.cli import main
from pkv_rules import all_rules

ROOT = Path(__file__).parent.parent
PLUGIN = ROOT / "examples" / "plugin"
FILE = str(ROOT / "examples" / "agent_fixed.jsonl")


def run(*arguments: str, site: Path) -> subprocess.CompletedProcess[str]:
    """Python with one more folder of packages."""
    folders = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "PYTHONUTF8": "1"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, encoding="utf-8", check=False, env=environment
    )


def lint(*arguments: str, site: Path) -> subprocess.CompletedProcess[str]:
    return run("-m", "pkv_lint.cli", *arguments, site=site)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the example package is installed; the build backend comes with the packages of the tests."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    done = run("-m", "pip", "install", *options, "--target", str(folder), str(PLUGIN), site=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_rule_is_found(site: Path) -> None:
    listed = lint("--list-rules", site=site).stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["HOUSE001", *sorted(rule.CODE for rule in all_rules())]
    page = lint("--explain", "house001", site=site).stdout
    assert page.startswith("HOUSE001 cold-session-start (warning)\n") and "\nFix safety\n" in page


def test_the_rule_can_be_chosen(site: Path) -> None:
    assert lint(FILE, "--offline", "--select", "HOUSE", site=site).returncode == 0
    assert lint(FILE, "--offline", "--ignore", "HOUSE001", site=site).returncode == 0


def test_the_tests_of_the_package(site: Path) -> None:
    folder = str(PLUGIN / "tests")
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", folder, "-c", os.devnull]
    done = run("-m", "pytest", *options, folder, site=site)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout


RULE = '"""A summary."""\nCODE = "{code}"\nNAME = "a-name"\nSEVERITY = "info"\nSOURCE_URL = "https://example.org/"\n'
CHECK = "def check(facts):\n    yield from ()\n"
ENTRY = "import sys\ndef all_rules():\n    return [sys.modules[__name__]]\n"


def package(folder: Path, source: str) -> Path:
    """A package without an installer: a module, and the metadata that names its entry point."""
    metadata = folder / "other_rules-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other-rules\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[pkv.rules]\nother = other_rules:all_rules\n")
    (folder / "other_rules.py").write_text(source)
    return folder


BROKEN = {
    "does not load": ("import nothing_of_this_name\n", "ModuleNotFoundError"),
    "does not parse": ("def all_rules(:\n", "SyntaxError"),
    "has no entry": (RULE.format(code="X001") + CHECK, "has no attribute 'all_rules'"),
    "raises": ("def all_rules():\n    raise ValueError('not today')\n", "ValueError: not today"),
    "gives no rules": ("def all_rules():\n    return None\n", "TypeError"),
    "has no code": (ENTRY + CHECK, "has no CODE"),
    "has no check": (RULE.format(code="X001") + ENTRY, "has no check"),
    "has no documentation": ((RULE.format(code="X001") + ENTRY + CHECK).partition("\n")[2], "has no __doc__"),
    "takes a code that is taken": (
        RULE.format(code="PKV101") + ENTRY + CHECK,
        "two installed rules have the code PKV101",
    ),
    "fails": (
        RULE.format(code="X001") + ENTRY + "def check(facts):\n    raise KeyError('x')\n",
        "the rule X001 failed: KeyError",
    ),
    "gives no findings": (
        RULE.format(code="X001") + ENTRY + "def check(facts):\n    return None\n",
        "the rule X001 failed",
    ),
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a package of this source beside the others, in this process."""

    def install(source: str) -> None:
        monkeypatch.syspath_prepend(package(tmp_path, source))
        monkeypatch.delitem(sys.modules, "other_rules", raising=False)

    return install


@pytest.mark.parametrize("name", BROKEN)
def test_rules_that_do_not_work_are_named(
    name: str, installed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    source, message = BROKEN[name]
    installed(source)
    assert main([FILE, "--offline"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pkv-lint: ") and message in line


def test_a_rule_that_works(installed: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    installed(RULE.format(code="X001") + ENTRY + CHECK)
    assert main([FILE, "--offline"]) == 0
    assert main(["--list-rules"]) == 0
    assert "X001  info     a-name" in capsys.readouterr().out
