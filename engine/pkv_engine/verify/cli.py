"""`pkv-verify`: send a traffic to a server and hold what it reuses against the prediction."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pkv_lint.command_line import complain, run, write
from pkv_lint.options import ServerOptions, server_options, stated
from pkv_lint.prompt.errors import InputError

if TYPE_CHECKING:
    from pkv_engine.verify.report import Report
    from pkv_sim.timing.timing_profile import TimingProfile

PROGRAM = "pkv-verify"
EPILOG = (
    "Exit status: 0 all requests that could be compared were served as predicted, 1 some were not, 2 nothing could be "
    "compared, bad usage or input."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run(command, PROGRAM, argv)


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", metavar="TRAFFIC")
@click.option(
    "--base-url", metavar="URL", callback=stated, help="The server. Without it the bundled engine is started."
)
@server_options
@click.option("--num-gpu-blocks", type=click.IntRange(2, 1 << 40), metavar="N", help="Blocks of the server's cache.")
@click.option("--reset-cache", is_flag=True, help="Empty the server's cache first.")
@click.option("--concurrency", type=click.IntRange(1, 1024), default=1, show_default=True, help="Requests at a time.")
@click.option("--recorded-times", is_flag=True, help="Send each request at its recorded time.")
@click.option("--step-log", metavar="FILE", help="Where the engine at URL writes its steps (pkv-engine --step-log).")
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 1 << 20),
    default=1,
    show_default=True,
    help="Tokens to generate for each request.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Send the first N requests only.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="For one request in all.",
)
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the API key of the server.")
@click.option(
    "--timing", metavar="FILE", callback=stated, help="Timing profile to predict times to the first token with."
)
@click.option(
    "--calibrate",
    metavar="FILE",
    callback=stated,
    help="Measure the server afterwards, write a timing profile, and predict with it.",
)
@click.option(
    "--recorded",
    is_flag=True,
    help="With --calibrate: fit to the times that TRAFFIC has (pkv-record) instead; nothing is sent.",
)
@click.option("--compare", metavar="TRAFFIC", help="Replay this one too, on an empty cache, and show what changes.")
@click.option("--per-request", is_flag=True, help="Show every request.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json", "html"]),
    default="text",
    show_default=True,
    help="Output format.",
)
@click.version_option(package_name="pkv-lint", prog_name=PROGRAM)
def command(
    file: str,
    base_url: str | None,
    server: ServerOptions,
    num_gpu_blocks: int | None,
    reset_cache: bool,
    concurrency: int,
    recorded_times: bool,
    step_log: str | None,
    max_tokens: int,
    limit: int | None,
    timeout: float,
    api_key_env: str | None,
    timing: str | None,
    calibrate: str | None,
    recorded: bool,
    compare: str | None,
    per_request: bool,
    format_: str,
) -> int:
    """Send a traffic to a server, and hold what it reports as cached against what pkv-sim predicts for it.

    TRAFFIC is a file of requests or of token ids; `-` reads standard input. The server is the one at URL and no other;
    without one the bundled engine is started on this machine and stopped again.
    """
    import asyncio

    from pkv_engine.verify.asking import Asking
    from pkv_engine.verify.replay import Pace
    from pkv_engine.verify.report import with_times
    from pkv_engine.verify.session import Deployed, verify_all
    from pkv_engine.verify.verification import Verifying
    from pkv_lint.output_file import check_writable
    from pkv_sim.progress import on_terminal
    from pkv_sim.timing.file import load_timing

    if recorded_times and concurrency > 1:
        raise click.UsageError("--recorded-times and --concurrency exclude each other")
    if timing is not None and calibrate is not None:
        raise click.UsageError("--timing and --calibrate exclude each other")
    if calibrate is not None:
        check_writable(calibrate)
    if recorded:
        if calibrate is None:
            raise click.UsageError("--recorded is for --calibrate")
        return _fit_recorded(file, calibrate)
    profile = load_timing(timing) if timing is not None else None
    choice = Verifying(
        pace=Pace(concurrency, recorded_times),
        asking=Asking(max_tokens=max_tokens, timeout=timeout),
        reset_cache=reset_cache,
        block_size=server.block_size,
        num_gpu_blocks=num_gpu_blocks,
        step_log=Path(step_log) if step_log is not None else None,
        zone=server.zone,
        limit=limit,
        progress=on_terminal,
    )
    files = [file, *([compare] if compare else [])]
    deployed = Deployed(server, base_url, _api_key(api_key_env), PROGRAM)
    reports, measured = asyncio.run(verify_all(files, deployed, choice, calibrated=calibrate is not None))
    if measured is not None and calibrate is not None:
        _save(measured, calibrate)
    if (profile := profile or measured) is not None:
        reports = [with_times(report, profile) for report in reports]
    _write(reports, format_, per_request=per_request)
    for report in reports:
        for error in report.unusable:
            complain(PROGRAM, error)
    return max(report.exit_status for report in reports)


def _api_key(name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise InputError(f"--api-key-env: the environment variable {name} holds no key")
    return key


def _fit_recorded(file: str, output: str) -> int:
    from pkv_engine.verify.calibration import fit_recorded
    from pkv_engine.verify.server import Server

    _save(fit_recorded(file, Server()), output)
    return 0


def _save(profile: TimingProfile, file: str) -> None:
    """Write a timing profile, and say how good it is."""
    import json

    from pkv_lint.output_file import write_file
    from pkv_sim.timing.file import timing_to_json

    write_file(file, [json.dumps(timing_to_json(profile), indent=2) + "\n"])
    assert profile.residuals is not None
    complain(
        PROGRAM,
        f"{file}: fitted to {profile.residuals.points} times, half of them within {profile.residuals.median:.1%}",
    )


def _write(reports: Sequence[Report], format_: str, *, per_request: bool) -> None:
    from pkv_engine.verify.outputs import json, text

    if format_ == "json":
        documents = [json.document(report) for report in reports]
        write(json.dumps(documents[0] | ({"compare": documents[1]} if len(documents) > 1 else {})))
    elif format_ == "html":
        from pkv_engine.verify.outputs import html

        write(html.page(reports))
    elif len(reports) > 1:
        write(text.comparison(*reports))
    else:
        write(text.lines(reports[0], per_request=per_request))


if __name__ == "__main__":
    sys.exit(main())
