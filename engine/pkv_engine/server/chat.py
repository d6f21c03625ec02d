"""`/v1/chat/completions`. A reply is plain content: nothing parses tool calls or reasoning out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from pkv_engine.generation import Delta, SampledToken
from pkv_engine.protocol.endpoints import PATHS
from pkv_engine.server.answer import answer
from pkv_engine.server.bodies import ChatBody
from pkv_engine.server.errors import ERRORS
from pkv_engine.server.logprobs import chat_logprobs, spelling
from pkv_engine.server.samples import Sample, samples_of
from pkv_engine.server.service import Service
from pkv_lint.prompt.tokenizer import Tokenizer


def router(service: Service) -> APIRouter:
    routes = APIRouter()

    @routes.post(PATHS["chat"], responses=ERRORS)
    async def create_chat_completion(body: ChatBody, request: Request) -> Response:
        service.check(body)
        # The renderer judges the body as it was sent: a model may have reordered what a template prints.
        prompt = await service.render(await request.json(), "chat")
        samples = samples_of([prompt], body.num_samples)
        return await answer(service, request, body, ChatWording(body, service.loaded.tokenizer), samples)

    return routes


class ChatWording:
    prefix = "chatcmpl"
    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def __init__(self, body: ChatBody, tokenizer: Tokenizer) -> None:
        self._body = body
        self._spell = spelling(tokenizer, as_ids=bool(body.return_tokens_as_token_ids))

    def opening(self, sample: Sample) -> dict[str, Any]:
        choice = {"index": sample.index, "delta": {"role": "assistant", "content": ""}}
        return {"choices": [{**choice, "logprobs": None, "finish_reason": None}], **self.head(sample)}

    def part(self, sample: Sample, delta: Delta) -> dict[str, Any]:
        return {"delta": {"content": delta.text}, **self._tokens(delta.tokens)}

    def whole(self, sample: Sample) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": sample.text}, **self._tokens(sample.tokens)}

    def head(self, sample: Sample) -> dict[str, Any]:
        return {"prompt_token_ids": sample.prompt.token_ids.tolist()} if self._body.return_token_ids else {}

    def _tokens(self, tokens: Sequence[SampledToken]) -> dict[str, Any]:
        body = self._body
        top = body.num_logprobs
        members = {"logprobs": None if top is None else chat_logprobs(tokens, top, self._spell)}
        return members | ({"token_ids": [token.token_id for token in tokens]} if body.return_token_ids else {})
