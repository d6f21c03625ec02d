"""The page of pkv-sim: its figures are those of the simulation, nothing of a traffic is markup, and it stays small."""

from __future__ import annotations

import hashlib
import io
import json
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.html_pages import Page, needs_chromium, opened

from pkv_lint.prompt.renderer import Renderer
from pkv_sim.bounds import bounds_of
from pkv_sim.capacity import capacity_curve
from pkv_sim.cli import main
from pkv_sim.outputs.html import axes, page, parts, sessions, timeline
from pkv_sim.report import Report
from pkv_sim.reservation import reservations_of
from pkv_sim.serving.settings import Settings
from pkv_sim.simulation import simulate
from pkv_sim.timing.file import load_timing
from pkv_sim.traffic.intake import Reading
from pkv_sim.traffic.loading import load_workload
from pkv_sim.traffic.workload import Blame, Workload

ROOT = Path(__file__).parent.parent.parent
EVIL = (
    "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>'\"&amp;{{ 17*43 }}\x1b[31m\x00\u202e"
)
SIZE = 4


def ids(start: int, stop: int, **members: Any) -> dict[str, Any]:
    return {"token_ids": list(range(start, stop)), **members}


def conversations(turns: int, names: Sequence[str] = ("a", "b", "c")) -> list[dict[str, Any]]:
    """Conversations that take turns, one second apart."""
    return [
        ids(1000 * at, 1000 * at + 20 * turn + 2, session_id=name, timestamp=float(turn), output_tokens=5)
        for turn in range(1, turns + 1)
        for at, name in enumerate(names)
    ]


@cache
def renderer() -> Renderer:
    return Renderer.load()


def load(*values: Any, name: str = "traffic.jsonl") -> Workload:
    data = "".join(json.dumps(value) + "\n" for value in values).encode()
    return replace(load_workload(io.BytesIO(data), renderer, Reading(block_size=SIZE)), name=name)


def report(workload: Workload, *, sweep: bool = False, memory: bool = False, **given: Any) -> Report:
    settings = Settings(**given)
    return Report(
        simulation=simulate(workload, settings),
        bounds=bounds_of(workload, settings),
        curve=capacity_curve(workload, settings) if sweep else None,
        reservations=reservations_of(workload) if memory else None,
    )


def shown(*reports: Report) -> tuple[Page, str]:
    source = "\n".join(page.lines(reports))
    return Page(source), source


class TestPage:
    def test_everything_that_was_asked_for(self) -> None:
        whole = report(load(*conversations(5)), sweep=True, memory=True, num_gpu_blocks=60, replicas=2)
        found, _ = shown(whole)
        rate = whole.simulation.hit_rate
        assert f"{rate * 100:.1f} % of the prompt tokens are cached; " in found.text
        for heading in ("In the course of the traffic", "Hit rate by size of the cache", "Sessions", "Replicas"):
            assert heading in found.text
        assert "now: 60 blocks" in found.text and "near ideal: " in found.text
        assert "blocks of 256" in found.text and "next power of two" in found.text
        assert len(found.of("article", "session")) == 3
        # Of every reason there is a figure.
        for state, tokens in zip(parts.STATES, (whole.simulation.cached_tokens, *whole.simulation.misses), strict=True):
            assert (f"{tokens:,}" in found.text and bool(found.of("i", state))) or not tokens

    def test_only_what_was_asked_for(self) -> None:
        found, _ = shown(report(load(*conversations(2))))
        for heading in ("size of the cache", "Replicas", "first token", "KV memory", "Top causes", "What changes"):
            assert heading not in found.text

    def test_it_needs_nothing_else(self) -> None:
        found, source = shown(report(load(*conversations(3)), sweep=True))
        assert not found.of("link") and not found.of("img")
        assert "http" not in source.replace("http-equiv", "") and "url(" not in source and "@import" not in source
        assert "prefers-color-scheme: dark" in source
        # The one script is the one that the policy allows.
        (script,) = re.findall(r"<script>(.*?)</script>", source, re.S)
        digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = next(own["content"] for own in found.of("meta") if own.get("http-equiv"))
        assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"

    def test_nothing_of_a_traffic_is_markup(self) -> None:
        workload = load(*conversations(2, names=(EVIL, "b")), name=f"{EVIL}.jsonl")
        blames: dict[int, tuple[Blame, ...]] = {3: (Blame("PKV101", "timestamp-in-prefix", EVIL, "first_seen", 20),)}
        whole = report(replace(workload, blames=blames, notes=(EVIL,)))
        found, source = shown(whole)
        assert len(found.of("script")) == 1 and not found.of("img")
        assert not set(source) & {"\x1b", "\x00", "\u202e"}
        # The title and the name of the file, the cause twice and in two tips, the session, the note.
        assert found.text.count("document.title='owned'") == 8 and "{{ 17*43 }}" in found.text
        assert "731" not in found.text
        assert "Top causes" in found.text and "PKV101" in found.text

    def test_before_and_after(self) -> None:
        before = report(load(*conversations(4), name="old.jsonl"), num_gpu_blocks=30)
        after = report(load(*conversations(4), name="new.jsonl"))
        found, _ = shown(before, after)
        rates = [f"{one.simulation.hit_rate * 100:.2f} %" for one in (before, after)]
        assert f"The hit rate rises from {rates[0]} to {rates[1]}" in found.text
        assert "What changes" in found.text and "old.jsonl" in found.text and "new.jsonl" in found.text
        assert len(found.of("article", "session")) == 6
        assert "The hit rate stays at" in shown(after, after)[0].text

    def test_simulated_times(self) -> None:
        timing = load_timing(str(ROOT / "examples" / "timing_8b_h100.json"))
        found, _ = shown(report(load(*conversations(6)), schedule="simulated", timing=timing, num_gpu_blocks=200))
        for words in ("Time to first token", "p50 ", "p95 ", "p99 ", "time in the queue", "requests/s"):
            assert words in found.text
        assert found.of("rect", "time")

    def test_nothing_served(self) -> None:
        refused = report(load(ids(0, 100)), num_gpu_blocks=3)
        found, _ = shown(refused)
        assert "No request was simulated" in found.text and "1 request refused" in found.text
        assert "The hit rate" in shown(refused, report(load(ids(0, 100))))[0].text

    def test_one_short_prompt(self) -> None:
        found, _ = shown(report(load(ids(0, 2)), sweep=True, memory=True))
        assert "100.0 % stand in prompts shorter than a block" in found.text
        assert "Not known: the traffic does not tell" in found.text


class TestBounds:
    """Large traffic is summed up, and the page says so."""

    def test_sessions_and_requests_that_lost_most(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sessions, "SESSIONS", 2)
        monkeypatch.setattr(sessions, "STRIPS", 3)
        whole = report(load(*conversations(5)), num_gpu_blocks=30)
        found, _ = shown(whole)
        assert len(found.of("article", "session")) == 2
        assert "Shown: the 2 of 3 sessions that lost most." in found.text
        assert "(shown: the 3 that lost most)" in found.text
        drawn = sessions.sessions(whole.simulation)
        assert [len(one.strips) for one in drawn.shown] == [3, 3]
        assert drawn.shown[0].lost >= drawn.shown[1].lost > 0

    def test_strips_account_for_every_token(self) -> None:
        whole = report(load(*conversations(5)), num_gpu_blocks=30, replicas=2)
        for one in sessions.sessions(whole.simulation).shown:
            total = 0
            for strip in one.strips:
                places = [tuple(map(int, re.match(r"M(\d+) \d+h(\d+)v", d).groups())) for _, d in strip.outlines]  # type: ignore[union-attr]
                assert [start for start, _ in places] == [
                    sum(width for _, width in places[:at]) for at in range(len(places))
                ]
                total += sum(width for _, width in places)
            assert total == one.tokens

    @pytest.mark.parametrize("timed", [True, False])
    def test_bins(self, timed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(timeline, "BINS", 12)
        monkeypatch.setattr(timeline, "FULLEST", 0.5)
        rows = conversations(30)
        for row in rows if not timed else ():
            del row["timestamp"]
        whole = report(load(*rows))
        drawn = timeline.timeline(whole.simulation)
        assert len(drawn.bars) <= 12 and drawn.bins <= 12
        assert sum(bar.tokens for bar in drawn.bars) == whole.simulation.prompt_tokens
        assert drawn.each == (
            "5 s a bar, from the first arrival on" if timed else "8 requests a bar, in the order of arrival"
        )
        labels = [tick.label for tick in drawn.ticks]
        assert labels == (["0 s", "5 s", "10 s", "15 s", "20 s", "25 s"] if timed else ["first", "last"])

    def test_a_burst_is_not_one_bar(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(timeline, "BINS", 12)
        burst = [ids(at, at + 8, timestamp=at / 100) for at in range(60)] + [ids(0, 8, timestamp=7200.0)]
        drawn = timeline.timeline(report(load(*burst)).simulation)
        assert len(drawn.bars) == 11 and drawn.each.endswith("labels are times since the first one")

    @pytest.mark.slow
    def test_50_000_requests(self, tmp_path: Path) -> None:
        trace, output = tmp_path / "trace.jsonl", tmp_path / "page.html"
        with trace.open("w") as stream:
            for at in range(50_000):
                session, turn = at % 500, at // 500
                line = {"timestamp": at * 50, "input_length": 512 * (turn + 1), "output_length": 9}
                blocks = [session * 1000 + block for block in range(turn + 1)]
                stream.write(json.dumps(line | {"hash_ids": blocks}) + "\n")
        assert main([str(trace), "--num-gpu-blocks", "9000", "--format", "html", "--output", str(output)]) == 0
        assert output.stat().st_size < 1_000_000


class TestAxes:
    def test_round_values_on_a_logarithmic_axis(self) -> None:
        axis = axes.LogAxis(40, 30_000)
        assert [tick.label for tick in axis.ticks("{:g}".format)] == [
            *("50", "100", "200", "500", "1000", "2000", "5000", "10000", "20000")
        ]
        assert axis.place(40) == 0 and axis.place(30_000) == pytest.approx(100)

    @pytest.mark.parametrize(("first", "last", "labels"), [(112, 286, "112 200 286"), (3, 3, "3"), (1e-6, 1e6, None)])
    def test_odd_ranges(self, first: float, last: float, labels: str | None) -> None:
        found = axes.LogAxis(first, last).ticks("{:g}".format)
        assert labels is None or " ".join(tick.label for tick in found) == labels
        assert all(0 <= tick.place <= 100 for tick in found)
        assert all(right.place - left.place >= axes.CLOSE for left, right in pairwise(found))

    def test_no_line_runs_through_the_text_of_another(self) -> None:
        found = axes.marks([(60.0, "a"), (90.0, "b"), (10.0, "c"), (30.0, "d")])
        assert [mark.label for mark in found] == ["b", "c", "d", "a"]
        assert [mark.left for mark in found] == [True, False, False, True]

    def test_words(self) -> None:
        seconds = (0, 0.25, 59, 90, 3600, 5400, 100_000)
        assert [*map(timeline.duration, seconds)] == ["0 s", "0.25 s", "59 s", "1.5 min", "1 h", "1.5 h", "1.16 d"]
        numbers = (0, 999, 1500, 123_456, 5_000_000, 6_006_837_305)
        assert [*map(timeline.short, numbers)] == ["0", "999", "1.5k", "123k", "5M", "6.01B"]
        assert axes.top_rate(0.0) == 0.05 and axes.top_rate(0.41) == 0.6 and axes.top_rate(1.0) == 1.0


class TestCommand:
    def test_a_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        output = tmp_path / "page.html"
        arguments = [str(ROOT / "examples" / "traffic.jsonl"), "--offline", "--num-gpu-blocks", "150"]
        assert main([*arguments, "--format", "html", "--output", str(output)]) == 0
        assert capsys.readouterr().out == ""
        found = Page(output.read_text(encoding="utf-8"))
        assert "48.7 % of the prompt tokens are cached; 30.7 % were evicted" in found.text
        assert "PKV104" in found.text and "20.9 %" in found.text
        # Other formats go into a file too, as they would be printed.
        assert main([*arguments, "--no-causes", "--output", str(output)]) == 0
        assert main([*arguments, "--no-causes"]) == 0
        assert capsys.readouterr().out == output.read_text(encoding="utf-8")

    def test_mistakes_are_found_before_the_work(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["absent.jsonl", "--format", "html", "--output", str(tmp_path / "no" / "page.html")]) == 2
        assert "cannot be written: there is no directory" in capsys.readouterr().err
        assert main(["absent.jsonl", "--format", "html", "--per-request"]) == 2
        assert "leave out --per-request" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []


# How colours look to eyes without one kind of cones, in linear RGB (Machado, Oliveira and Fernandes, 2009).
SEEN = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
APART = 15.0
"""Distance in CIELAB: from 2.3 on people see a difference where colours touch."""


def lab(colour: str, eyes: str) -> tuple[float, float, float]:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    r, g, b = (min(1.0, max(0.0, sum(map(float.__mul__, map(float, row), linear)))) for row in SEEN[eyes])
    xyz = (
        0.4124 * r + 0.3576 * g + 0.1805 * b,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        0.0193 * r + 0.1192 * g + 0.9505 * b,
    )
    x, y, z = (
        (part / white) ** (1 / 3) if part / white > 0.008856 else 7.787 * part / white + 16 / 116
        for part, white in zip(xyz, (0.9505, 1.0, 1.089), strict=True)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("eyes", SEEN)
def test_states_are_told_apart_by_all_eyes(scheme: int, eyes: str) -> None:
    _, source = shown(report(load(ids(0, 9))))
    rules = re.findall(r"((?:\.\w+,? )+)\{ --colour: var\(--([\w-]+)\)", source)
    states = {name: variable for names, variable in rules for name in re.findall(r"\w+", names)}
    used = {name: states[name] for name in parts.STATES}
    assert len(set(used.values())) == len(used)
    values = {name: re.findall(rf"--{variable}: (#\w{{6}})", source)[scheme] for name, variable in used.items()}
    for one, other in combinations(values, 2):
        distance = (
            sum((a - b) ** 2 for a, b in zip(lab(values[one], eyes), lab(values[other], eyes), strict=True)) ** 0.5
        )
        assert distance >= APART, (one, other, distance)


DRIVER = """<script>
document.querySelector(".plot").focus();
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
press("End");
document.body.dataset.last = document.querySelector(".tip.open").textContent;
press("ArrowLeft");
document.body.dataset.beforeLast = document.querySelector(".tip.open").textContent;
press("Escape");
document.body.dataset.closed = document.querySelectorAll(".tip.open").length;
const strip = document.querySelector(".session g");
strip.firstElementChild.nextElementSibling.dispatchEvent(new PointerEvent("pointermove", { bubbles: true }));
document.body.dataset.under = document.querySelector(".tip.open").textContent;
</script></body>"""


@pytest.mark.slow
@needs_chromium
def test_in_a_browser(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    whole = report(load(*conversations(3, names=(EVIL, "b")), name=EVIL), sweep=True, num_gpu_blocks=30)
    source = shown(whole)[1]
    path.write_text(source, encoding="utf-8")
    document, console = opened(path)
    assert 'data-tips="ready"' in document and not console
    assert "<title>pkv-sim" in document
    # As a user drives it; the policy would not let the driver in.
    path.write_text(re.sub("<meta http-equiv[^>]*>", "", source).replace("</body>", DRIVER), encoding="utf-8")
    document, console = opened(path)
    assert not console
    assert 'data-last="6th request, line 6: 62 prompt tokens' in document
    assert 'data-before-last="5th request, line 5: 62 prompt tokens' in document
    assert 'data-closed="0"' in document and re.search(r'data-under="\d\w\w request, line', document)
