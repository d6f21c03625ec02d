"""`/tokenize` and `/detokenize`, in vLLM's shapes (`entrypoints/serve/tokenize/protocol.py`).

Messages are rendered as Chat Completions renders them, which vLLM's endpoint does not quite do; the length is not
limited.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict

from pkv_engine.server.bodies import Messages, TokenId
from pkv_engine.server.errors import ERRORS, ApiError
from pkv_engine.server.service import Service


class TokenizeBody(BaseModel):
    """Either text or messages."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = False


class DetokenizeBody(BaseModel):
    model: str | None = None
    tokens: list[TokenId]


def router(service: Service) -> APIRouter:
    routes = APIRouter()
    tokenizer = service.loaded.tokenizer

    @routes.post("/tokenize", responses=ERRORS)
    async def tokenize(body: TokenizeBody, request: Request) -> dict[str, Any]:
        if (text := body.prompt) is not None:
            service.check_model(body.model)
            ids = await service.in_thread(lambda: tokenizer.encode(text, body.add_special_tokens is not False))
        elif body.messages is not None:
            sent = await request.json()
            ids = (await service.in_thread(lambda: service.unlimited.render(sent, api="chat"))).token_ids
        else:
            raise ApiError(400, "needs a prompt or messages")
        spelled = [tokenizer.backend.id_to_token(token) for token in ids] if body.return_token_strs else None
        return {
            "count": len(ids),
            "max_model_len": service.loaded.max_model_len,
            "tokens": ids.tolist(),
            "token_strs": spelled,
        }

    @routes.post("/detokenize", responses=ERRORS)
    async def detokenize(body: DetokenizeBody) -> dict[str, str]:
        service.check_model(body.model)
        return {"prompt": await service.in_thread(lambda: tokenizer.decode(body.tokens))}

    return routes
