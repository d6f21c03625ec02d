"""What a request may ask for: the fields that are honoured, and those that are refused.

Names, types and defaults are vLLM's (`entrypoints/openai/*/protocol.py`). Fields that only change the prompt are judged
by the renderer; those that neither knows are ignored, as in vLLM.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from pkv_engine.generation import SamplingParams
from pkv_engine.server.errors import ApiError

Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Stop = Annotated[str, Field(max_length=1000)]
_MESSAGE = {"role": {"enum": ["system", "user", "assistant"]}, "content": {"type": "string"}}
_MESSAGES = {"type": "array", "items": {"type": "object", "required": list(_MESSAGE), "properties": _MESSAGE}}
Messages = Annotated[list[dict[str, Any]], WithJsonSchema(_MESSAGES)]
"""Described by their usual form; the renderer takes what vLLM takes."""

MAX_LOGPROBS = 20
"""Alternatives per token (vLLM: `--max-logprobs`)."""
MAX_SAMPLES = 256
"""Samples that one request may ask for, over all of its prompts."""

REFUSED: dict[str, tuple[object, ...]] = {
    "allowed_token_ids": (),
    "audio": (),
    "bad_words": ([],),
    "echo": (False,),
    "frequency_penalty": (0,),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "kv_transfer_params": ({},),
    "logit_bias": ({},),
    "logprob_token_ids": ([],),
    "presence_penalty": (0,),
    "prompt_embeds": ([],),
    "prompt_logprobs": (),
    "repetition_detection": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "suffix": ("",),
    "thinking_token_budget": (-1,),
    "tool_choice": ("none", "auto"),
    "use_beam_search": (False,),
    "watermarking": (False,),
}
"""Fields that would change the answer and are not modelled, with the values that change nothing (nor does null)."""


class StreamOptions(BaseModel):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class GenerationBody(BaseModel):
    """What both APIs take."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    n: Annotated[int, Field(ge=1)] | None = 1
    max_tokens: Int64 | None = None
    min_tokens: Int64 = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: Int64 | None = None
    min_p: float | None = None
    seed: Int64 | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=64)] | None = None
    stop_token_ids: list[Int64] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    priority: Int64 = 0
    cache_salt: str | None = None
    request_id: str | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None

    @property
    def num_samples(self) -> int:
        """Samples of each prompt."""
        return self.n or 1

    @property
    def num_logprobs(self) -> int | None:
        """Alternatives that are reported for each token; None for no report."""
        raise NotImplementedError

    @property
    def length(self) -> int | None:
        """Most tokens to generate; None for as many as the context holds."""
        return self.max_tokens

    def check(self, *, priorities: bool) -> None:
        """Raises ApiError (400) for what is not modelled."""
        given = dict(self)
        for name, neutral in REFUSED.items():
            if (value := given.get(name)) is not None and value not in neutral:
                raise ApiError(400, f"{name} is not supported by this server", param=name)
        if self.priority and not priorities:
            raise ApiError(400, "priority needs a server with --scheduling-policy priority", param="priority")
        if self.num_logprobs is not None and not 0 <= self.num_logprobs <= MAX_LOGPROBS:
            message = f"logprobs must be between 0 and {MAX_LOGPROBS}, got {self.num_logprobs}"
            raise ApiError(400, message, param="logprobs")

    def sampling_params(self, sample: int, vocab_size: int) -> SamplingParams:
        """For one of the samples of a prompt, counted from 0. Raises InputError for values that vLLM refuses."""
        return SamplingParams(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=min(self.top_k or 0, vocab_size),
            min_p=self.min_p or 0.0,
            # vLLM: `parallel_sampling.py:ParentRequest._get_child_sampling_params`.
            seed=None if self.seed is None else (self.seed + sample + 2**63) % 2**64 - 2**63,
            max_tokens=self.length,
            min_tokens=self.min_tokens,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ()),
            # Others are never sampled.
            stop_token_ids=frozenset(token for token in self.stop_token_ids or () if 0 <= token < vocab_size),
            ignore_eos=self.ignore_eos,
            include_stop_str_in_output=self.include_stop_str_in_output,
            skip_special_tokens=self.skip_special_tokens,
            logprobs=self.num_logprobs,
        )


class ChatBody(GenerationBody):
    """A body of `/v1/chat/completions`."""

    messages: Messages
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    max_completion_tokens: Int64 | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = 0

    @property
    def num_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def length(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


class CompletionBody(GenerationBody):
    """A body of `/v1/completions`."""

    prompt: str | list[TokenId] | list[list[TokenId]] | list[str]
    max_tokens: Int64 | None = 16
    logprobs: int | None = None
    add_special_tokens: bool = True
    truncate_prompt_tokens: Annotated[Int64, Field(ge=-1)] | None = None
    truncation_side: Literal["left", "right"] | None = None

    @property
    def num_logprobs(self) -> int | None:
        return self.logprobs

    @property
    def length(self) -> int | None:
        return 16 if self.max_tokens is None else self.max_tokens

    @property
    def prompts(self) -> list[str | list[int]]:
        """Each prompt of the request."""
        if isinstance(self.prompt, list) and self.prompt and not isinstance(self.prompt[0], int):
            return self.prompt  # type: ignore[return-value]
        return [self.prompt]  # type: ignore[list-item]
