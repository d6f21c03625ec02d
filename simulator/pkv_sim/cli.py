"""`pkv-sim`: predict how much of a traffic a prefix cache serves, and why not more."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, cast

import click

from pkv_lint.command_line import complain, run, write
from pkv_lint.options import ServerOptions, server_options

if TYPE_CHECKING:
    from pkv_sim.generated import Generated
    from pkv_sim.settings import Schedule
    from pkv_sim.workload import Workload

PROGRAM = "pkv-sim"
EPILOG = "Exit status: 0 all simulated, 2 bad usage or input, or lines that cannot be used."
MOST = 20
"""Unusable lines that are named before the others are only counted."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run(command, PROGRAM, argv)


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", metavar="TRAFFIC")
@server_options
@click.option(
    "--num-gpu-blocks",
    type=click.IntRange(2, 1 << 40),
    metavar="N",
    help="Blocks of the cache, the null block among them, as vLLM counts. Without it there is no limit.",
)
@click.option(
    "--schedule",
    type=click.Choice(["sequential", "recorded"]),
    default="sequential",
    show_default=True,
    help="One request after the other, or each from its recorded start to its recorded end.",
)
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
    "--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
@click.version_option(package_name="pkv-lint", prog_name=PROGRAM)
def command(
    file: str,
    num_gpu_blocks: int | None,
    schedule: str,
    generated: str,
    vllm_version: str | None,
    subagents: bool,
    no_causes: bool,
    compare: str | None,
    per_request: bool,
    format_: str,
    server: ServerOptions,
) -> int:
    """Predict by vLLM's own rules what its prefix cache serves of a traffic, and say why the rest is computed.

    TRAFFIC is a file of requests or a trace in one of many formats, plain or compressed; `-` reads standard input.
    """
    from pkv_lint.prompt.deployment import Deployment
    from pkv_sim.bounds import bounds_of
    from pkv_sim.loading import Reading, load_workload
    from pkv_sim.modelled import check_deployment, check_model, max_model_len, model_config
    from pkv_sim.outputs import json, text
    from pkv_sim.profile import DEFAULT_PROFILE, Profile
    from pkv_sim.progress import on_terminal
    from pkv_sim.settings import Settings
    from pkv_sim.simulation import simulate

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
    settings = Settings(
        num_gpu_blocks=num_gpu_blocks or deployment.num_gpu_blocks_override,
        schedule=cast("Schedule", schedule),
        generated=cast("Generated", generated),
        profile=Profile.for_version(vllm_version) if vllm_version else DEFAULT_PROFILE,
    )
    renderer = cache(lambda: server.renderer(PROGRAM))
    workloads = [load_workload(name, renderer, reading) for name in (file, *([compare] if compare else []))]
    simulations = [simulate(workload, settings, on_terminal) for workload in workloads]
    bounds = [bounds_of(workload, settings) for workload in workloads]
    if format_ == "json":
        documents = [
            json.document(simulation, bound, per_request=per_request)
            for simulation, bound in zip(simulations, bounds, strict=True)
        ]
        write(json.dumps(documents[0] | ({"compare": documents[1]} if compare else {})))
    elif compare:
        write(text.comparison(*simulations))
    else:
        write(text.lines(simulations[0], bounds[0], per_request=per_request))
    return max(name_unusable(workload) for workload in workloads)


def name_unusable(workload: Workload) -> int:
    """Name the lines that could not be used. Returns the exit status."""
    for error in workload.unusable[:MOST]:
        complain(PROGRAM, error)
    if len(workload.unusable) > MOST:
        complain(PROGRAM, f"{workload.name}: and {len(workload.unusable) - MOST:,} more lines that cannot be used")
    return 2 if workload.unusable else 0


if __name__ == "__main__":
    sys.exit(main())
