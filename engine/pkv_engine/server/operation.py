"""What those who run a server ask it: models, version, health, metrics, and to forget its prefix cache."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from pkv_engine.server.service import Service


def router(service: Service) -> APIRouter:
    routes = APIRouter()

    @routes.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [model(name) for name in service.names]}

    @routes.get("/v1/models/{name:path}", responses={404: {"description": "Not Found"}})
    async def retrieve_model(name: str) -> dict[str, Any]:
        service.check_model(name)
        return model(name)

    def model(name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": service.started,
            "owned_by": "pkv",
            "root": service.loaded.name,
            "parent": None,
            "max_model_len": service.loaded.max_model_len,
        }

    @routes.get("/version")
    async def show_version() -> dict[str, str]:
        return {"version": version("pkv-lint")}

    @routes.get("/health", response_class=Response, responses={503: {"description": "It ends, or its engine has"}})
    async def health() -> Response:
        return Response(status_code=503 if service.draining or service.front.failure is not None else 200)

    @routes.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @routes.post("/reset_prefix_cache", responses={409: {"description": "Blocks are in use"}})
    async def reset_prefix_cache() -> JSONResponse:
        success = await service.front.reset_prefix_cache()
        return JSONResponse({"success": success}, 200 if success else 409)

    return routes
