"""The official client gets from this server what it expects from any."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

openai = pytest.importorskip("openai")

MESSAGES = [{"role": "user", "content": "Say it."}]
TYPED = " The quick brown f"


@pytest.fixture(scope="module")
def client(running) -> Iterator:
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_chat(client) -> None:
    reply = client.chat.completions.create(model="typist", messages=MESSAGES, max_completion_tokens=7)
    assert reply.object == "chat.completion" and reply.id.startswith("chatcmpl-") and reply.model == "typist"
    (choice,) = reply.choices
    assert choice.message.role == "assistant" and choice.message.content == TYPED
    assert choice.finish_reason == "length" and choice.logprobs is None
    assert reply.usage.completion_tokens == 7
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 7


def test_the_cache_is_reported(client, running) -> None:
    messages = [{"role": "user", "content": "A long story. " * 40}]

    def ask() -> tuple[int, int]:
        raw = client.chat.completions.with_raw_response.create(model="typist", messages=messages, max_tokens=1)
        assert raw.headers["content-type"] == "application/json"
        usage = raw.parse().usage
        return usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens

    prompt_tokens, cached = ask()
    assert cached == 0
    assert ask() == (prompt_tokens, (prompt_tokens - 1) // 16 * 16)
    salted = client.chat.completions.create(
        model="typist", messages=messages, max_tokens=1, extra_body={"cache_salt": "mine"}
    )
    assert salted.usage.prompt_tokens_details.cached_tokens == 0


def test_chat_stream(client) -> None:
    stream = client.chat.completions.create(
        model="typist",
        messages=MESSAGES,
        max_tokens=7,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"return_token_ids": True},
    )
    first, *rest, last = list(stream)
    assert first.choices[0].delta.role == "assistant" and first.choices[0].delta.content == ""
    assert len(first.prompt_token_ids) == last.usage.prompt_tokens
    assert "".join(chunk.choices[0].delta.content for chunk in rest) == TYPED
    assert [chunk.choices[0].finish_reason for chunk in rest] == [None] * 6 + ["length"]
    assert sum(len(chunk.choices[0].token_ids) for chunk in rest) == last.usage.completion_tokens == 7
    assert last.choices == [] and last.usage.prompt_tokens_details.cached_tokens is not None
    assert len({chunk.id for chunk in (first, *rest, last)}) == 1


def test_usage_in_every_chunk(client) -> None:
    stream = client.chat.completions.create(
        model="typist",
        messages=MESSAGES,
        max_tokens=3,
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )
    usages = [chunk.usage for chunk in stream]
    assert [usage.completion_tokens for usage in usages] == [0, 1, 2, 3, 3]
    assert all(usage.prompt_tokens_details.cached_tokens is not None for usage in usages)


def test_no_usage_unless_asked(client) -> None:
    stream = client.chat.completions.create(model="typist", messages=MESSAGES, max_tokens=2, stream=True)
    assert all(chunk.usage is None and chunk.choices for chunk in stream)


def test_chat_samples_and_logprobs(client) -> None:
    reply = client.chat.completions.create(
        model="typist", messages=MESSAGES, max_tokens=2, n=3, logprobs=True, top_logprobs=2
    )
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert reply.usage.completion_tokens == 6
    first = reply.choices[0].logprobs.content[0]
    assert (first.token, first.logprob, first.bytes) == (" The", -9999.0, list(b" The"))
    assert [top.token for top in first.top_logprobs] == [" The", ","]


def test_stop(client) -> None:
    reply = client.chat.completions.create(model="typist", messages=MESSAGES, max_tokens=30, stop=["brown"])
    assert reply.choices[0].message.content == " The quick "
    assert reply.choices[0].finish_reason == "stop" and reply.choices[0].stop_reason == "brown"
    kept = client.chat.completions.create(
        model="typist",
        messages=MESSAGES,
        max_tokens=30,
        stop="brown",
        extra_body={"include_stop_str_in_output": True},
    )
    assert kept.choices[0].message.content == " The quick brown"


def test_completion(client) -> None:
    reply = client.completions.create(model="typist", prompt="Once", extra_body={"return_token_ids": True}, logprobs=1)
    assert reply.object == "text_completion" and reply.id.startswith("cmpl-")
    (choice,) = reply.choices
    assert reply.usage.completion_tokens == 16 == len(choice.token_ids)
    assert len(choice.prompt_token_ids) == reply.usage.prompt_tokens
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.text_offset[:2] == [0, 4] and len(choice.logprobs.top_logprobs) == 16


def test_prompts(client) -> None:
    texts = client.completions.create(model="typist", prompt=["One", "Two"], n=2, max_tokens=1)
    assert [choice.index for choice in texts.choices] == [0, 1, 2, 3]
    ids = client.completions.create(model="typist", prompt=[1, 2, 3], max_tokens=1)
    lists = client.completions.create(model="typist", prompt=[[1, 2, 3], [4]], max_tokens=1)
    assert (ids.usage.prompt_tokens, lists.usage.prompt_tokens) == (3, 4)
    assert (len(ids.choices), len(lists.choices)) == (1, 2)


def test_completion_stream(client) -> None:
    stream = client.completions.create(
        model="typist",
        prompt=["One", "Two"],
        max_tokens=3,
        stream=True,
        logprobs=0,
        stream_options={"include_usage": True},
        extra_body={"return_token_ids": True},
    )
    *chunks, last = list(stream)
    for index in (0, 1):
        own = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == index]
        assert "".join(choice.text for choice in own) == " The quick"
        assert [bool(getattr(choice, "prompt_token_ids", None)) for choice in own] == [True, False, False]
        assert [choice.logprobs.text_offset for choice in own] == [[0], [4], [7]]
        assert own[-1].finish_reason == "length"
    assert last.usage.completion_tokens == 6


def test_models(client) -> None:
    (model,) = client.models.list().data
    assert model.id == "typist" and model.max_model_len == 2048
    assert client.models.retrieve("typist").id == "typist"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("org/other")


def test_errors(client) -> None:
    def fails(kind: type[Exception], **arguments: object) -> dict:
        with pytest.raises(kind) as raised:
            client.chat.completions.create(**{"model": "typist", "messages": MESSAGES, **arguments})
        return raised.value.body

    body = fails(openai.NotFoundError, model="gpt-4o")
    assert body["code"] == 404 and body["param"] == "model" and "typist" in body["message"]
    assert fails(openai.BadRequestError, messages=[])["type"] == "BadRequestError"
    assert fails(openai.BadRequestError, messages=[{"role": "user", "content": 5}])["param"].startswith("messages[0]")
    assert (
        "maximum context length"
        in fails(openai.BadRequestError, messages=[{"role": "user", "content": "word " * 3000}])["message"]
    )
    assert fails(openai.BadRequestError, top_p=2)["param"] == "top_p"
    assert fails(openai.BadRequestError, temperature="warm")["param"] == "temperature"
    assert fails(openai.BadRequestError, max_tokens=0)["param"] == "max_tokens"
    assert fails(openai.BadRequestError, stream=True, max_tokens=0)["param"] == "max_tokens"


@pytest.mark.parametrize(
    "field",
    [
        {"logit_bias": {"5": 1}},
        {"frequency_penalty": 0.5},
        {"presence_penalty": 0.5},
        {"repetition_penalty": 1.1},
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"regex": "a+"}},
        {"guided_json": {}},
        {"prompt_logprobs": 1},
        {"bad_words": ["no"]},
        {"allowed_token_ids": [5]},
        {"use_beam_search": True},
        {"echo": True},
        {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"},
        {"priority": 3},
    ],
    ids=lambda field: list(field)[-1],
)
def test_what_would_change_the_answer_is_refused_by_name(client, field: dict) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model="typist", messages=MESSAGES, extra_body=field)
    assert raised.value.body["param"] == list(field)[-1]


def test_what_changes_nothing_is_taken(client) -> None:
    neutral = {
        "logit_bias": {},
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "response_format": {"type": "text"},
        "tool_choice": "none",
        "echo": False,
        "suffix": None,
        "store": True,
        "some_field": {"unknown": []},
    }
    client.chat.completions.create(model="typist", messages=MESSAGES, max_tokens=1, extra_body=neutral)


def test_sampling_parameters_reach_the_engine(client, running) -> None:
    running.typist.seen.clear()
    client.chat.completions.create(
        model="typist",
        messages=MESSAGES,
        n=2,
        seed=7,
        temperature=0.5,
        top_p=0.9,
        max_tokens=9,
        extra_body={
            "top_k": 10**9,
            "min_p": 0.1,
            "min_tokens": 2,
            "ignore_eos": True,
            "stop_token_ids": [5, 2**40],
            "skip_special_tokens": False,
        },
    )
    first, second = sorted(running.typist.seen.values(), key=lambda params: params.seed)
    assert (first.seed, second.seed) == (7, 8)
    assert (first.temperature, first.top_p, first.min_p, first.top_k) == (0.5, 0.9, 0.1, 8192)
    assert (first.max_tokens, first.min_tokens, first.ignore_eos) == (9, 2, True)
    assert first.stop_token_ids == {5} and not first.skip_special_tokens
