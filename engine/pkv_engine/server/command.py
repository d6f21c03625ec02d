"""`pkv-engine serve`."""

from __future__ import annotations

import click

from pkv_engine.options import EngineOptions, engine_options
from pkv_engine.protocol.listening import bound
from pkv_lint.command_line import complain
from pkv_lint.options import stated
from pkv_lint.prompt.errors import InputError

PROGRAM = "pkv-engine"
LOCAL = ("127.0.0.1", "::1", "localhost")


@click.command("serve", context_settings={"help_option_names": ["-h", "--help"]})
@engine_options
@click.option("--host", default=LOCAL[0], show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("--served-model-name", multiple=True, metavar="NAME", help="Names to answer to (default: the model's).")
@click.option(
    "--api-key", envvar="PKV_API_KEY", metavar="KEY", callback=stated, help="Clients must send it as a Bearer token."
)
@click.option("--trust-request-chat-template", is_flag=True, help="Take templates from requests.")
@click.option("--max-requests", type=click.IntRange(1), default=1024, show_default=True, help="More are answered 429.")
@click.option("--max-body-size", type=click.IntRange(1), default=32 << 20, show_default=True, help="In bytes.")
@click.option("--shutdown-timeout", type=click.FloatRange(0), default=30.0, show_default=True, help="In seconds.")
def command(engine: EngineOptions, host: str, port: int, **options: object) -> int:
    """Serve a model under the OpenAI API.

    SIGTERM and SIGINT let the running requests end, for as long as --shutdown-timeout; a second one does not.
    """
    try:
        from pkv_engine.loading import load
        from pkv_engine.server.draining import DrainingServer
        from pkv_engine.server.service import Service, ServingOptions
    except ImportError as error:
        raise InputError(f"the server needs {error.name}: pip install 'pkv-lint[engine]'") from None
    serving = ServingOptions(**options)  # type: ignore[arg-type]
    if host not in LOCAL and serving.api_key is None:
        complain(PROGRAM, f"whoever reaches {host} can use this server: it has no --api-key")
    with bound(host, port) as listener:
        DrainingServer(Service(load(engine), serving)).run([listener])
    return 0
