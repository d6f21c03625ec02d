"""`/v1/completions`: text or token ids go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from pkv_engine.generation import Delta, SampledToken
from pkv_engine.protocol.endpoints import PATHS
from pkv_engine.server.answer import answer
from pkv_engine.server.bodies import CompletionBody
from pkv_engine.server.errors import ERRORS
from pkv_engine.server.logprobs import completion_logprobs, spelling
from pkv_engine.server.samples import Sample, samples_of
from pkv_engine.server.service import Service
from pkv_lint.prompt.sampling import check_sampling
from pkv_lint.prompt.tokenizer import Tokenizer
from pkv_lint.prompt.validation import check_cache_salt, refused


def router(service: Service) -> APIRouter:
    routes = APIRouter()

    @routes.post(PATHS["completions"], responses=ERRORS)
    async def create_completion(body: CompletionBody, request: Request) -> Response:
        prompts = body.prompts
        service.check(body, len(prompts))
        given = body.model_dump(exclude={"max_completion_tokens"}, exclude_none=True)
        check_sampling(given)
        check_cache_salt(body.cache_salt)
        if body.stream_options is not None and not body.stream:
            raise refused("Stream options can only be defined when `stream=True`.", "stream_options")
        rendered = [await service.render({**given, "prompt": [prompt]}, "completions") for prompt in prompts]
        samples = samples_of(rendered, body.num_samples)
        return await answer(service, request, body, CompletionWording(body, service.loaded.tokenizer), samples)

    return routes


class CompletionWording:
    prefix = "cmpl"
    kind = "text_completion"
    chunk_kind = "text_completion"

    def __init__(self, body: CompletionBody, tokenizer: Tokenizer) -> None:
        self._body = body
        self._spell = spelling(tokenizer, as_ids=bool(body.return_tokens_as_token_ids))

    def opening(self, sample: Sample) -> None:
        return None

    def part(self, sample: Sample, delta: Delta) -> dict[str, Any]:
        first = len(sample.tokens) == len(delta.tokens)
        return {"text": delta.text, **self._tokens(sample, delta.tokens, prompt=first)}

    def whole(self, sample: Sample) -> dict[str, Any]:
        return {"text": sample.text, **self._tokens(sample, sample.tokens, prompt=True)}

    def head(self, sample: Sample) -> dict[str, Any]:
        return {}

    def _tokens(self, sample: Sample, tokens: Sequence[SampledToken], *, prompt: bool) -> dict[str, Any]:
        body = self._body
        members: dict[str, Any] = {"logprobs": None}
        if (top := body.num_logprobs) is not None:
            report = completion_logprobs(tokens, top, self._spell, sample.text_offset)
            sample.text_offset += sum(map(len, report["tokens"]))
            members["logprobs"] = report
        if body.return_token_ids:
            members["token_ids"] = [token.token_id for token in tokens]
            if prompt:
                members["prompt_token_ids"] = sample.prompt.token_ids.tolist()
        return members
