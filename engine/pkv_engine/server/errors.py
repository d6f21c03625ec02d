"""Errors as OpenAI and vLLM write them: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from itertools import takewhile
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from pkv_engine.async_engine import EngineDeadError
from pkv_lint.prompt.errors import InputError, RenderError
from pkv_lint.prompt.source import format_path


class ApiError(Exception):
    """An answer other than 200. `param` is the place in the body that is to blame, as a JSON path."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.headers = headers

    def body(self) -> dict[str, Any]:
        kind = HTTPStatus(self.status).phrase.replace(" ", "").removesuffix("Error") + "Error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.status}}

    def response(self) -> Response:
        # ASCII alone: what a message quotes from a request may hold lone surrogates, which UTF-8 cannot write.
        content = json.dumps(self.body())
        return Response(content, self.status, self.headers, media_type="application/json")


def api_error(error: Exception) -> ApiError:
    """The answer to a request that failed with `error`."""
    match error:
        case ApiError():
            return error
        case RenderError():
            # Where vLLM itself fails over a body (500), the body is to blame here.
            return ApiError(error.status if error.status < 500 else 400, error.message, param=error.path)
        case InputError():
            return ApiError(400, error.message, param=error.path)
        case RequestValidationError():
            return _invalid(max(error.errors(), key=lambda complaint: len(complaint["loc"])))
        case HTTPException():
            return ApiError(error.status_code, str(error.detail), headers=error.headers)
        case EngineDeadError():
            return ApiError(503, "the engine has ended")
    return ApiError(500, "internal error")


def _invalid(complaint: dict[str, Any]) -> ApiError:
    """A complaint of pydantic. Behind a field its place names members of unions, too."""
    _, *steps = complaint["loc"]
    if not steps or isinstance(steps[0], int):
        return ApiError(400, f"{complaint['msg']}: {complaint.get('ctx', {}).get('error', 'the body')}")
    place = format_path([steps[0], *takewhile(lambda step: isinstance(step, int), steps[1:])])
    return ApiError(400, f"{place}: {complaint['msg']}", param=place)


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "The request is refused"},
    "5XX": {"description": "The server fails, or is about to end"},
}
"""What the endpoints that take a body may answer but 200, for the OpenAPI description."""


def install(app: FastAPI) -> None:
    """Has the application answer every failure in this shape."""

    async def answer(_: Request, error: Exception) -> Response:
        return api_error(error).response()

    for kind in (
        ApiError,
        RenderError,
        InputError,
        RequestValidationError,
        HTTPException,
        EngineDeadError,
        Exception,  # Starlette also logs what lands here
    ):
        app.add_exception_handler(kind, answer)
