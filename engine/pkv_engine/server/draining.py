"""The server process: it ends in two steps."""

from __future__ import annotations

import logging
import socket
import time
from types import FrameType

import uvicorn

from pkv_engine.server.app import create_app
from pkv_engine.server.service import Service

logger = logging.getLogger("uvicorn.error")  # which prints the other lines of the start


class DrainingServer(uvicorn.Server):
    """On the first signal new requests are refused while the others go on; it stops when these have ended, their time
    is over or another signal comes."""

    def __init__(self, service: Service, **config: object) -> None:
        """`config` is uvicorn's."""
        settings = {"access_log": False, "timeout_graceful_shutdown": 1, **config}
        super().__init__(uvicorn.Config(create_app(service), **settings))  # type: ignore[arg-type]
        self._service = service
        self._deadline = float("inf")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            logger.info("Listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = self._service.draining
        self._service.draining = True
        self._deadline = time.monotonic() + self._service.options.shutdown_timeout

    async def on_tick(self, counter: int) -> bool:
        service = self._service
        over = service.draining and (service.num_requests == 0 or time.monotonic() > self._deadline)
        return await super().on_tick(counter) or over
