"""`pkv-sim`: predict how much of a traffic a prefix cache serves, and why not more."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, cast

import click

from pkv_lint.command_line import complain, run, write
from pkv_lint.options import ServerOptions, server_options
from pkv_lint.output_file import check_writable, write_file

if TYPE_CHECKING:
    from pkv_sim.report import Report
    from pkv_sim.serving.routing import RouterName
    from pkv_sim.serving.settings import Schedule
    from pkv_sim.traffic.generated import Generated
    from pkv_sim.traffic.workload import Workload

PROGRAM = "pkv-sim"
EPILOG = "Exit status: 0 all simulated, 2 bad usage or input, or lines that cannot be used."
LEAST_BLOCKS, MOST_BLOCKS = 2, 1 << 40
MOST = 20
"""Unusable lines that are named before the others are only counted."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run(command, PROGRAM, argv)


def size(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Bytes of an option's value."""
    from pkv_sim.kv_memory import read_size

    try:
        return read_size(value) if value is not None else None
    except ValueError:
        raise click.BadParameter(f"{value!r} is no size such as 40GiB", ctx=context, param=option) from None


def sizes(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Numbers of blocks; none for `auto`."""
    from pkv_lint.prompt.deployment import human_integer

    if value is None or value == "auto":
        return () if value else None
    try:
        found = tuple(map(human_integer, value.split(",")))
        if not all(LEAST_BLOCKS <= number <= MOST_BLOCKS for number in found):
            raise ValueError
    except (ValueError, OverflowError):
        message = f"{value!r} is neither auto nor numbers of blocks from {LEAST_BLOCKS} on, with commas in between"
        raise click.BadParameter(message, ctx=context, param=option) from None
    return found


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", metavar="TRAFFIC")
@server_options
@click.option(
    "--num-gpu-blocks",
    type=click.IntRange(LEAST_BLOCKS, MOST_BLOCKS),
    metavar="N",
    help="Blocks of the cache, the null block among them, as vLLM counts. Without it there is no limit.",
)
@click.option(
    "--kv-cache-memory",
    callback=size,
    metavar="SIZE",
    help="Memory for the cache on each GPU, such as 40GiB; the model's config.json turns it into blocks.",
)
@click.option(
    "--sweep",
    callback=sizes,
    metavar="auto|N,N,…",
    help="Hit rates of caches of so many blocks (2k: 2,000, 2K: 2,048), the knee and the smallest that is enough.",
)
@click.option("--memory", is_flag=True, help="Compare blocks with contiguous reservation: waste, sequences at once.")
@click.option(
    "--schedule",
    type=click.Choice(["sequential", "recorded", "simulated"]),
    default="sequential",
    show_default=True,
    help="One request after the other, each from its recorded start to its recorded end, or by the times of steps.",
)
@click.option("--replicas", type=click.IntRange(1, 1000), default=1, metavar="N", help="Servers, each with its cache.")
@click.option(
    "--router",
    type=click.Choice(["round-robin", "sticky", "least-loaded", "prefix-aware"]),
    default="round-robin",
    show_default=True,
    help="How requests are sent to the replicas.",
)
@click.option("--timing", metavar="FILE", help="Measured times of steps (by pkv-verify --calibrate).")
@click.option("--gpu", metavar="NAME", help="Estimate times for this GPU, such as H100-SXM, and the model.")
@click.option(
    "--generated",
    type=click.Choice(["recorded", "none", "counted", "text"]),
    default="recorded",
    show_default=True,
    help="What of the replies is cached: the recorded text, nothing, room for the length, or text of the next turn.",
)
@click.option("--vllm-version", metavar="X.Y", help="Release whose rules hold (default: the newest that is known).")
@click.option("--subagents", is_flag=True, help="Count the requests of nested agents in traces of sessions.")
@click.option("--no-causes", is_flag=True, help="Do not ask the linter why prompts diverge.")
@click.option("--compare", metavar="TRAFFIC", help="Simulate this one too, and show what changes.")
@click.option("--per-request", is_flag=True, help="Show every request.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json", "html"]),
    default="text",
    show_default=True,
    help="Output format; html is one page with charts, which needs nothing else.",
)
@click.option("--output", metavar="FILE", help="Write to this file instead of standard output.")
@click.version_option(package_name="pkv-lint", prog_name=PROGRAM)
def command(
    file: str,
    num_gpu_blocks: int | None,
    kv_cache_memory: int | None,
    sweep: tuple[int, ...] | None,
    memory: bool,
    schedule: str,
    replicas: int,
    router: str,
    timing: str | None,
    gpu: str | None,
    generated: str,
    vllm_version: str | None,
    subagents: bool,
    no_causes: bool,
    compare: str | None,
    per_request: bool,
    format_: str,
    output: str | None,
    server: ServerOptions,
) -> int:
    """Predict by vLLM's own rules what its prefix cache serves of a traffic, and say why the rest is computed.

    TRAFFIC is a file of requests or a trace in one of many formats, plain or compressed; `-` reads standard input.
    """
    from pkv_lint.prompt.deployment import Deployment
    from pkv_sim.bounds import bounds_of
    from pkv_sim.capacity import capacity_curve
    from pkv_sim.exact.profile import DEFAULT_PROFILE, Profile
    from pkv_sim.kv_memory import stated_memory
    from pkv_sim.modelled import check_deployment, check_model, max_model_len, model_config
    from pkv_sim.progress import on_terminal
    from pkv_sim.report import Report
    from pkv_sim.reservation import reservations_of
    from pkv_sim.serving.limits import SchedulerLimits
    from pkv_sim.serving.settings import Settings
    from pkv_sim.simulation import simulate
    from pkv_sim.timing.gpus import gpu_named
    from pkv_sim.timing.stated import stated_timing
    from pkv_sim.traffic.intake import Reading
    from pkv_sim.traffic.loading import load_workload

    if num_gpu_blocks is not None and kv_cache_memory is not None:
        raise click.UsageError("--num-gpu-blocks and --kv-cache-memory both say how large the cache is")
    if compare is not None and (memory or sweep is not None):
        raise click.UsageError(f"--compare shows no {'curve: leave out --sweep' if sweep is not None else 'memory'}")
    if per_request and format_ == "html":
        raise click.UsageError("--format html shows the requests that lost most: leave out --per-request")
    if output is not None:
        check_writable(output)
    deployment = Deployment.from_vllm_args(server.vllm_args)
    check_deployment(deployment, schedule)
    config = model_config(server, deployment)
    if config is not None:
        check_model(config, deployment)
    reading = Reading(
        block_size=server.block_size or deployment.block_size,
        subagents=subagents,
        causes=not no_causes,
        max_model_len=max_model_len(deployment, config),
        zone=server.zone,
        progress=on_terminal,
    )
    room = stated_memory(kv_cache_memory, config, deployment) if num_gpu_blocks is None else None
    device = gpu_named(gpu) if gpu is not None else None
    settings = Settings(
        num_gpu_blocks=num_gpu_blocks or deployment.num_gpu_blocks_override,
        schedule=cast("Schedule", schedule),
        generated=cast("Generated", generated),
        profile=Profile.for_version(vllm_version) if vllm_version is not None else DEFAULT_PROFILE,
        replicas=replicas,
        router=cast("RouterName", router),
        limits=SchedulerLimits.of(deployment, reading.max_model_len, device),
        timing=stated_timing(timing, device, config, server.model or deployment.model, deployment),
    )
    renderer = cache(lambda: server.renderer(PROGRAM))
    workloads = [load_workload(name, renderer, reading) for name in (file, *([compare] if compare is not None else []))]
    reports = []
    for workload in workloads:
        sized = replace(settings, num_gpu_blocks=room.num_gpu_blocks(workload.block_size)) if room else settings
        reports.append(
            Report(
                simulation=simulate(workload, sized, on_terminal),
                bounds=bounds_of(workload, sized),
                memory=room,
                max_model_len=reading.max_model_len,
                curve=capacity_curve(workload, sized, sweep, on_terminal) if sweep is not None else None,
                reservations=reservations_of(workload, reading.max_model_len) if memory else None,
            )
        )
    text = rendered(reports, format_, per_request=per_request)
    if output is None:
        write(text)
    else:
        write_file(output, (f"{click.unstyle(line)}\n" for line in text))
    return max(name_unusable(workload) for workload in workloads)


def rendered(reports: Sequence[Report], format_: str, *, per_request: bool) -> Iterator[str]:
    """The lines of the output of one report, or of two to compare."""
    from pkv_sim.outputs import json, report

    if format_ == "html":
        from pkv_sim.outputs.html import page

        yield from page.lines(reports)
    elif format_ == "json":
        first, *others = (report.document(found, per_request=per_request) for found in reports)
        yield json.dumps(first | ({"compare": others[0]} if others else {}))
    elif len(reports) > 1:
        yield from report.comparison(*reports)
    else:
        yield from report.lines(reports[0], per_request=per_request)


def name_unusable(workload: Workload) -> int:
    """Name the lines that could not be used. Returns the exit status."""
    for error in workload.unusable[:MOST]:
        complain(PROGRAM, error)
    if len(workload.unusable) > MOST:
        complain(PROGRAM, f"{workload.name}: and {len(workload.unusable) - MOST:,} more lines that cannot be used")
    return 2 if workload.unusable else 0


if __name__ == "__main__":
    sys.exit(main())
