"""`pkv-engine`: serve a model, generate with it, measure it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from pkv_engine import bench, generate
from pkv_engine.server.command import PROGRAM
from pkv_engine.server.command import command as serve
from pkv_lint.command_line import run

EPILOG = "Exit status: 0 done, 2 bad usage or input."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run(command, PROGRAM, argv)


@click.group(epilog=EPILOG, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pkv-lint", prog_name=PROGRAM)
def command() -> None:
    """A small engine with a real paged KV cache, scheduled by the rules that pkv-sim simulates."""


for subcommand in (serve, generate.command, bench.command):
    command.add_command(subcommand)


if __name__ == "__main__":
    sys.exit(main())
