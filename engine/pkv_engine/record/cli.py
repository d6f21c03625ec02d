"""`pkv-record`: stand between clients and a server, and write down what passes."""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pkv_lint.command_line import complain, run
from pkv_lint.options import ServerOptions, server_options, stated
from pkv_lint.prompt.errors import InputError

if TYPE_CHECKING:
    from pkv_engine.record.line_file import LineFile
    from pkv_engine.record.recorder import Write

PROGRAM = "pkv-record"
EPILOG = "Exit status: 0 when it was stopped (Ctrl-C), 2 bad usage."
KEY_BYTES = 32


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run(command, PROGRAM, argv)


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--upstream", required=True, metavar="URL", callback=stated, help="The server to pass requests on to.")
@click.option(
    "--listen",
    default="127.0.0.1:8001",
    show_default=True,
    metavar="HOST:PORT",
    callback=stated,
    help="Where clients find the proxy.",
)
@click.option(
    "--output", required=True, metavar="FILE", callback=stated, help="File that lines of traffic are appended to."
)
@click.option(
    "--session-header", metavar="NAME", callback=stated, help="Request header that names the session of a request."
)
@click.option(
    "--redact", is_flag=True, help="Write pseudo-random token ids that keep prefixes and lengths, and no text."
)
@click.option(
    "--redact-key", metavar="FILE", help="Key of the ids, to compare recordings (default: a new random one each time)."
)
@server_options
@click.version_option(package_name="pkv-lint", prog_name=PROGRAM)
def command(
    upstream: str,
    listen: str,
    output: str,
    session_header: str | None,
    redact: bool,
    redact_key: str | None,
    server: ServerOptions,
) -> int:
    """Pass requests on to a server and write each with its reply as a line of traffic for pkv-lint, pkv-sim and
    pkv-verify.

    Clients are pointed at the proxy and notice nothing. Of headers, API keys among them, nothing is written.
    """
    if redact_key is not None and not redact:
        raise click.UsageError("--redact-key is for --redact")
    host, port = _address(listen)
    key = _key(redact_key) if redact else None
    try:
        import uvicorn

        from pkv_engine.record.proxy import proxy
    except ImportError as error:
        raise InputError(f"pkv-record needs {error.name}: pip install 'pkv-lint[record]'") from None
    from pkv_engine.protocol.listening import bound
    from pkv_engine.protocol.urls import server_root
    from pkv_engine.record.line_file import LineFile
    from pkv_engine.record.recorder import Recorder

    with closing(bound(host, port)) as listener, LineFile(output) as file:
        recorder = Recorder(_writer(file, key, server))
        app = proxy(server_root(upstream, "--upstream"), recorder, session_header=session_header)
        config = uvicorn.Config(app, log_level="warning", server_header=False, date_header=False)
        logging.getLogger("uvicorn.error").addFilter(brief)
        complain(PROGRAM, f"{listen} passes on to {upstream} and records to {output}; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])
    failed = f", {recorder.num_failed:,} could not be recorded" if recorder.num_failed else ""
    complain(PROGRAM, f"{recorder.num_written:,} requests recorded{failed}")
    return 0


def brief(record: logging.LogRecord) -> bool:
    """A server that breaks off in the middle of a reply is no fault of this program, but one line of its log."""
    from httpx import RequestError

    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, RequestError):
        record.msg, record.args, record.exc_info = f"a reply broke off: {error or type(error).__name__}", (), None
    return True


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"--listen needs HOST:PORT such as 127.0.0.1:8001, not {listen!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _key(file: str | None) -> bytes:
    if file is None:
        return secrets.token_bytes(KEY_BYTES)
    try:
        key = Path(file).read_bytes().strip()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from None
    if not 16 <= len(key) <= 64:
        raise InputError(f"a key has 16 to 64 bytes, not {len(key)}", file=file)
    return key


def _writer(file: LineFile, key: bytes | None, server: ServerOptions) -> Write:
    from pkv_engine.record.lines import native_line, written

    if key is None:
        return lambda exchange: file.write(written(native_line(exchange)))
    from pkv_engine.record.redaction import Redactor

    redactor = Redactor(key, server.renderer(PROGRAM))
    return lambda exchange: file.write(written(redactor.line(exchange)))


if __name__ == "__main__":
    sys.exit(main())
