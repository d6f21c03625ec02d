"""The command that fixes files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fixes.traffic import Fix, Run, jsonl

from pkv_lint.cli import main


@pytest.fixture
def fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Fix:
    """Runs `pkv-lint --fix` on a file with this content; checks that a second run changes nothing."""

    def call(content: str | bytes | list[Any], *options: str, name: str = "traffic.jsonl", do: str = "--fix") -> Run:
        path = tmp_path / name
        content = jsonl(content) if isinstance(content, list) else content
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        status = main([str(path), do, "--offline", *options])
        captured = capsys.readouterr()
        run = Run(status, captured.out, captured.err, path)
        assert "Traceback" not in captured.err
        if do == "--fix":
            data = run.data
            main([str(path), do, "--offline", *options])
            again = capsys.readouterr()
            assert run.data == data and " fixed (" not in again.err.replace("not fixed (", "")
        return run

    return call
