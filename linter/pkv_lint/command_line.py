"""What every command line here does alike: its exit status, errors as one line, output that may be cut off."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from collections.abc import Iterable, Sequence

import click

from pkv_lint.columns import visible
from pkv_lint.prompt.errors import InputError

USAGE, INTERRUPTED = 2, 130
COLLECT_EVERY = 50_000
"""New objects between two collections of garbage, not 700: requests are trees, which need none, and looking through all
of them took a tenth of the time."""


def run(command: click.Command, name: str, argv: Sequence[str] | None) -> int:
    """Run a command on its arguments (default: those of the process). Returns the exit status: the command's own, or
    2 with one line on stderr for what the user has to mend."""
    for closed, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, closed) is None:  # by who started this process, as `<&-` does
            setattr(sys, closed, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or pipe that cannot take a character shows its code.
            stream.reconfigure(errors="backslashreplace")
    arguments = sys.argv[1:] if argv is None else list(argv)
    thresholds = gc.get_threshold()
    gc.set_threshold(COLLECT_EVERY, *thresholds[1:])
    try:
        # Not Command.main: it turns a closed pipe into exit status 1, which means findings here.
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        with command.make_context(name, arguments, color=False if plain else None) as context:
            return int(command.invoke(context) or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.MissingParameter as error:
        complain(name, f"{error.format_message()} See {name} --help.")
    except click.ClickException as error:
        complain(name, error.format_message())
    except InputError as error:
        complain(name, error)
    except BrokenPipeError:
        drop_output()
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        drop_output()  # --help and the like are printed by click itself
        complain(name, f"cannot write the output: {error.strerror}")
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    finally:
        gc.set_threshold(*thresholds)
    return USAGE


def complain(name: str, message: object) -> None:
    """One line on stderr. What a message quotes is not to be trusted: a terminal must not obey it."""
    click.echo(f"{name}: {visible(' '.join(str(message).split()))}", err=True)


def write(text: str | bytes | Iterable[str]) -> None:
    """Print lines (or a text, or bytes, as they are); whoever reads them may go away before the end. Raises InputError
    where the output cannot be written (a full disk)."""
    pieces = [text] if isinstance(text, (str, bytes)) else text
    for piece in pieces:
        try:
            click.echo(piece, nl=pieces is text)
        except BrokenPipeError:
            drop_output()
            return
        except OSError as error:
            drop_output()
            raise InputError(f"cannot write the output: {error.strerror or error}") from None


def drop_output() -> None:
    """Nobody reads stdout any more: what is still to be flushed must not fail at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
