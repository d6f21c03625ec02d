"""`pkv-sim`: predict how much of a traffic a prefix cache serves, and why not more."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import cast

import click

from pkv_lint.command_line import complain, run, write
from pkv_lint.options import ServerOptions, server_options
from pkv_lint.prompt.errors import InputError

PROGRAM = "pkv-sim"
EPILOG = "Exit status: 0 simulated, 2 bad usage or input."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run(command, PROGRAM, argv)


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", metavar="TRAFFIC")
@server_options
@click.option("--num-gpu-blocks", type=click.IntRange(1), metavar="N", help="Blocks of the cache, as vLLM counts them.")
@click.option(
    "--schedule",
    type=click.Choice(["sequential", "recorded"]),
    default="sequential",
    show_default=True,
    help="One request after the other, or from its recorded start to its recorded end.",
)
@click.option(
    "--generated",
    type=click.Choice(["none", "counted", "text", "next-turn"]),
    default="text",
    show_default=True,
    help="What of the replies is cached.",
)
@click.option("--per-request", is_flag=True, help="Say it for every request.")
@click.option(
    "--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
@click.version_option(package_name="pkv-lint", prog_name=PROGRAM)
def command(
    file: str,
    num_gpu_blocks: int | None,
    schedule: str,
    generated: str,
    per_request: bool,
    format_: str,
    server: ServerOptions,
) -> int:
    """Predict what vLLM's prefix cache serves of a traffic."""
    from pkv_sim.loading import Reading, load_workload
    from pkv_sim.outputs import json as output
    from pkv_sim.simulation import Settings, simulate

    renderer = server.renderer(PROGRAM)
    workload = load_workload(
        file, renderer, server.block_tokens(renderer), Reading(block_size=server.block_size, zone=server.zone)
    )
    settings = Settings(num_gpu_blocks=num_gpu_blocks, schedule=schedule, generated=generated)
    write(output.dumps(output.document(simulate(workload, settings), per_request=per_request)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
