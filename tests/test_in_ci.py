"""In CI: the pre-commit hook, the GitHub action, the job for GitLab, the assertion for tests, and a built wheel."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fixes.traffic import clocked, conversation, jsonl

from pkv_lint import assert_prefix_stable
from pkv_lint.prompt.errors import InputError

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples" / "ci"
CLOCKED, CLEAN = jsonl(conversation(3, clocked)), jsonl(conversation(3))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with requests, and `pkv-lint` on the path beside it."""
    shim = tmp_path / "pkv-lint" / "bin" / "pkv-lint"
    shim.parent.mkdir(parents=True)
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pkv_lint.cli "$@"\n')
    shim.chmod(0o755)
    folder = tmp_path / "project"
    (folder / "tests" / "requests").mkdir(parents=True)
    (folder / "tests" / "requests" / "agent.jsonl").write_text(CLOCKED)
    return folder


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{folder.parent / 'pkv-lint' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "PRE_COMMIT"))}
    return subprocess.run(
        command, cwd=folder, env={**variables, "PATH": path, **environment}, capture_output=True, text=True, check=False
    )


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


class TestPreCommit:
    @pytest.fixture
    def repository(self, project: Path) -> Path:
        """A repository with the hook as users have it, but run from here: installing it takes a package index."""
        (hook,) = loaded(ROOT / ".pre-commit-hooks.yaml")
        (used,) = loaded(EXAMPLES / "pre-commit.yaml")["repos"]
        assert [one["id"] for one in used["hooks"]] == [hook["id"]]
        local = {**hook, "language": "system", **used["hooks"][0]}
        config = {"repos": [{"repo": "local", "hooks": [local]}]}
        (project / ".pre-commit-config.yaml").write_text(json.dumps(config))
        run(["git", "init", "-q", "."], project)
        return project

    def commit(self, repository: Path) -> subprocess.CompletedProcess[str]:
        run(["git", "add", "."], repository)
        home = str(repository.parent / "home")
        return run([sys.executable, "-m", "pre_commit", "run"], repository, PRE_COMMIT_HOME=home)

    def test_a_commit_is_stopped_with_the_report(self, repository: Path) -> None:
        done = self.commit(repository)
        assert done.returncode == 1
        assert "tests/requests/agent.jsonl:2:" in done.stdout and "PKV101 error" in done.stdout

    def test_a_commit_without_findings_passes(self, repository: Path) -> None:
        (repository / "tests" / "requests" / "agent.jsonl").write_text(CLEAN)
        (repository / "agent.jsonl").write_text(CLOCKED)  # not below the folder that the hook is for
        done = self.commit(repository)
        assert done.returncode == 0, done.stdout


class TestGitHub:
    def action(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        action = loaded(ROOT / "action.yml")
        assert action["runs"]["using"] == "composite"
        return action["inputs"], action["runs"]["steps"]

    def test_the_action_annotates(self, project: Path) -> None:
        _, (_, step) = self.action()
        done = self.step(project, step, {"files": "tests/requests", "args": "--fail-on error"})
        assert done.returncode == 1, done.stderr
        assert re.match(r"::error .*file=tests/requests/agent.jsonl,line=2,.*PKV101", done.stdout)

    def test_inputs_are_no_commands(self, project: Path) -> None:
        _, (_, step) = self.action()
        done = self.step(project, step, {"files": "$(touch pwned); tests/requests", "args": ""})
        assert done.returncode == 2 and not (project / "pwned").exists()
        assert all("${{" not in one["run"] for one in self.action()[1])

    def test_the_action_installs_itself(self) -> None:
        _, (install, _) = self.action()
        assert install["env"] == {"SOURCE": "${{ github.action_path }}"}
        assert 'pip" install --quiet "$SOURCE"' in install["run"]

    def test_the_workflow_names_inputs_that_there_are(self) -> None:
        (job,) = loaded(EXAMPLES / "github.yml")["jobs"].values()
        inputs, _ = self.action()
        (use,) = [step for step in job["steps"] if "pkv-lint" in step["uses"]]
        assert {name for name, one in inputs.items() if one.get("required")} <= set(use["with"]) <= set(inputs)

    def step(
        self, project: Path, step: Mapping[str, Any], inputs: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        variables = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], value)
            for name, value in step["env"].items()
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return run(command, project, RUNNER_TEMP=str(project.parent), **variables)


class TestGitLab:
    def test_the_job_fails_and_keeps_a_report(self, project: Path) -> None:
        job = loaded(EXAMPLES / "gitlab.yml")["pkv-lint"]
        assert job["before_script"] == ["pip install --quiet pkv-lint"]
        done = run(["bash", "-ec", "\n".join(job["script"])], project, **job["variables"])
        assert done.returncode == 1, done.stderr
        assert re.match(r"tests/requests/agent\.jsonl:2:\d+: PKV101 ", done.stdout)
        for name in job["artifacts"]["paths"]:
            assert "PKV101" in (project / name).read_text(encoding="utf-8")


class TestAssertion:
    def test_stable_prompts_pass(self) -> None:
        assert_prefix_stable(conversation(3))

    def test_the_text_is_the_report(self) -> None:
        with pytest.raises(AssertionError) as caught:
            assert_prefix_stable(conversation(3, clocked))
        text = str(caught.value)
        assert "requests:2:" in text and "PKV101 error  timestamp-in-prefix" in text
        assert "\x1b" not in text and "2 of 3 requests" in text

    def test_options(self) -> None:
        bodies = conversation(3, clocked)
        assert_prefix_stable(bodies, ignore=["PKV101"])
        assert_prefix_stable(bodies, select=["PKV2"])
        assert_prefix_stable(bodies, fail_on="never")
        assert_prefix_stable(bodies, block_size=4096)
        assert_prefix_stable([{"session_id": "s", "request": body} for body in conversation(2)])

    def test_what_cannot_be_judged_fails(self) -> None:
        with pytest.raises(AssertionError, match="requests:1:14: PKV902"):
            assert_prefix_stable([{"messages": "hello"}], select=["PKV101"])
        with pytest.raises(AssertionError, match="no requests"):
            assert_prefix_stable([])

    @pytest.mark.parametrize("options", [{"select": ["PKV999"]}, {"select": []}, {"ignore": "PKV101"}])
    def test_codes_that_no_rule_has(self, options: dict[str, Any]) -> None:
        with pytest.raises(InputError, match=r"no code|has the code"):
            assert_prefix_stable(conversation(3, clocked), **options)

    def test_a_model_that_is_not_there(self) -> None:
        with pytest.raises(InputError, match="no-such-model"):
            assert_prefix_stable(conversation(2), model="./no-such-model")

    def test_the_example(self, tmp_path: Path) -> None:
        test = EXAMPLES / "test_prompts.py"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
        done = run(command, tmp_path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_a_built_wheel_lints(tmp_path: Path) -> None:
    """As `uvx pkv-lint request.json` runs it: the wheel in an environment of its own, which sees the dependencies that
    are installed here. Nothing is asked of a package index."""
    pytest.importorskip("hatchling")
    made = run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], ROOT)
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    home = tmp_path / "environment"
    venv.create(home)
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    installed = run([sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", str(wheel)], ROOT)
    assert installed.returncode == 0, installed.stderr
    (packages,) = home.glob("lib/python*/site-packages")
    # As a plain folder: what is installed here in development mode stays out of sight.
    (packages / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    (tmp_path / "request.json").write_text(json.dumps({"messages": [{"role": "system", "content": clocked(1)}]}))
    where = run([str(python), "-c", "import pkv_lint; print(pkv_lint.__file__)"], tmp_path)
    assert where.stdout.startswith(str(packages)), where.stderr
    done = run([str(python.with_name("pkv-lint")), "request.json", "--format", "json"], tmp_path)
    assert json.loads(done.stdout)["summary"]["requests"] == 1, done.stderr
    rules = run([str(python.with_name("pkv-lint")), "--list-rules"], tmp_path)
    assert "PKV101" in rules.stdout
