"""The application: its endpoints, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from pkv_engine.server import chat, completions, errors, operation, tokenization
from pkv_engine.server.gate import Gate
from pkv_engine.server.service import Service


def create_app(service: Service) -> FastAPI:
    """An ASGI application, for one run: the engine starts and ends with it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(title="pkv-engine", lifespan=lifespan, docs_url=None, redoc_url=None)
    errors.install(app)
    app.add_middleware(Gate, service=service)
    for module in (chat, completions, tokenization, operation):
        app.include_router(module.router(service))
    return app
