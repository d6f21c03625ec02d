"""What a server makes of the fields of a request: variables of the template, limits, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pkv_lint.prompt.renderer import Renderer

Serve = Callable[..., Any]

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f"}}
NAMED = {"type": "function", "function": {"name": "f"}}
DUMP = "{{ messages | tojson }}"
PARSER = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")


def show(*names: str) -> str:
    """A template that prints these variables, `-` for what is undefined."""
    return "|".join(f"{{{{ {name} | tojson if {name} is defined else '-' }}}}" for name in names)


def defaults(kwargs: str) -> tuple[str, ...]:
    return ("--default-chat-template-kwargs", kwargs, *PARSER)


# Defaults


def test_variables_of_a_bare_request(serve: Serve) -> None:
    names = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "enable_thinking")
    assert serve(show(*names)).text() == '[{"role": "user", "content": "hi"}]|null|null|true|-|-'


def test_special_tokens_are_variables_where_they_are_set(serve: Serve) -> None:
    # The built-in vocabulary sets two of them.
    assert serve(show("bos_token", "eos_token", "pad_token")).text() == '-|"<|im_end|>"|"<|endoftext|>"'
    assert serve("<{{ bos_token }}>").text() == "<>"
    assert serve("{{ bos_token + 'x' }}").refusal().message == "'bos_token' is undefined"


def test_special_tokens_can_be_overridden(serve: Serve) -> None:
    kwargs = {"bos_token": "B", "eos_token": "E"}
    assert serve("{{ bos_token }}{{ eos_token }}").text(chat_template_kwargs=kwargs) == "BE"


@pytest.mark.parametrize("value", [True, False])
def test_the_generation_prompt_is_a_field(serve: Serve, value: bool) -> None:
    server = serve(show("add_generation_prompt"))
    assert server.text(add_generation_prompt=value) == str(value).lower()
    # Among the arguments it has no effect: the field comes later, at its default too.
    assert server.text(chat_template_kwargs={"add_generation_prompt": False}) == "true"


# Merging


@pytest.mark.parametrize(
    ("stated", "sent", "seen"),
    [
        ("{}", {"a": 1}, "1"),
        ('{"a": 1}', {}, "1"),
        ('{"a": 1}', None, "1"),
        ('{"a": 1}', {"a": 2}, "2"),
        ('{"a": 1}', {"a": None}, "1"),
        ('{"a": 1}', {"a": "auto"}, "1"),
        ('{"a": {"b": 1}}', {"a": {"c": 2}}, '{"c": 2}'),
        ("{}", {"a": None}, "-"),
        ("{}", {"a": "auto"}, "-"),
        ("{}", {"a": ""}, '""'),
        ("{}", {"a": 0}, "0"),
        ("{}", {"a": False}, "false"),
        ("{}", {"a": []}, "[]"),
        # What the server was started with stays as it is.
        ('{"a": null}', {}, "null"),
        ('{"a": "auto"}', {}, '"auto"'),
        ('{"a": null}', {"a": None}, "null"),
    ],
    ids=str,
)
def test_arguments_of_the_request_over_those_of_the_server(serve: Serve, stated: str, sent: Any, seen: str) -> None:
    assert serve(show("a"), *defaults(stated)).text(chat_template_kwargs=sent) == seen


@pytest.mark.parametrize("value", [None, "auto"])
def test_unset_arguments_vanish_without_defaults_of_the_server_too(serve: Serve, value: Any) -> None:
    assert serve(show("a")).text(chat_template_kwargs={"a": value}) == "-"


def test_fields_over_arguments(serve: Serve) -> None:
    server = serve(show("documents", "reasoning_effort"))
    kwargs = {"documents": [{"a": 1}], "reasoning_effort": "low"}
    assert server.text(chat_template_kwargs=kwargs) == '[{"a": 1}]|"low"'
    sent = server.text(chat_template_kwargs=kwargs, documents=[{"title": "t"}], reasoning_effort="high")
    assert sent == '[{"title": "t"}]|"high"'


def test_documents_among_the_arguments_are_objects(serve: Serve) -> None:
    error = serve(DUMP).refusal(chat_template_kwargs={"documents": ["x"]})
    assert error.message == "Documents should be a list of dicts with 'title' and 'text' keys!"


# Reasoning effort


@pytest.mark.parametrize(
    ("effort", "kwargs", "seen"),
    [
        ("high", None, '"high"|true'),
        ("none", None, '"none"|false'),
        ("none", {"enable_thinking": True}, '"none"|true'),
        ("high", {"enable_thinking": False}, '"high"|false'),
        ("high", {"enable_thinking": None}, '"high"|-'),
        (None, {"reasoning_effort": "low"}, '"low"|-'),
        (None, None, "-|-"),
    ],
    ids=str,
)
def test_effort_turns_thinking_on(serve: Serve, effort: Any, kwargs: Any, seen: str) -> None:
    server = serve(show("reasoning_effort", "enable_thinking"))
    assert server.text(reasoning_effort=effort, chat_template_kwargs=kwargs) == seen


def test_effort_over_a_default_of_the_server(serve: Serve) -> None:
    server = serve(show("enable_thinking"), *defaults('{"enable_thinking": false}'))
    assert server.text() == "false"
    assert server.text(reasoning_effort="low") == "true"


def test_the_effort_map_comes_first(serve: Serve) -> None:
    effort_map = '{"high": "none", "none": "high", "low": "medium", "medium": "low"}'
    server = serve(show("reasoning_effort", "enable_thinking"), "--reasoning-effort-map", effort_map)
    assert server.text(reasoning_effort="high") == '"none"|false'
    assert server.text(reasoning_effort="none") == '"high"|true'
    assert server.text(reasoning_effort="low") == '"medium"|true'  # mapped once
    assert server.text(reasoning_effort="max") == '"max"|true'
    assert server.text(chat_template_kwargs={"reasoning_effort": "high"}) == '"high"|-'


# Which arguments reach the template


def test_an_argument_is_handed_on_only_if_the_template_takes_it_from_outside(serve: Serve) -> None:
    kwargs = {"a": 1}
    assert serve("{{ a }}").text(chat_template_kwargs=kwargs) == "1"
    assert serve("{% set a = 2 %}{{ a }}").text(chat_template_kwargs=kwargs) == "2"
    assert serve("{% for a in [3] %}{{ a }}{% endfor %}").text(chat_template_kwargs=kwargs) == "3"


@pytest.mark.parametrize("name", ["padding", "truncation", "max_length", "return_tensors", "tokenizer_kwargs"])
def test_parameters_of_transformers_do_nothing(serve: Serve, name: str) -> None:
    assert serve(DUMP + show(name)).text(chat_template_kwargs={name: {}}).endswith("]-")


@pytest.mark.parametrize("name", ["tokenize", "return_dict", "continue_final_message"])
@pytest.mark.parametrize("value", [True, False])
def test_arguments_that_vllm_sets_itself(serve: Serve, name: str, value: bool) -> None:
    assert serve(DUMP + show(name)).text(chat_template_kwargs={name: value}).endswith("]-")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("messages", "jinja2.environment.Template.render() got multiple values for keyword argument 'messages'"),
        ("conversation", "safe_apply_chat_template() got multiple values for argument 'conversation'"),
        ("tokenizer", "safe_apply_chat_template() got multiple values for argument 'tokenizer'"),
        ("model_config", "safe_apply_chat_template() got multiple values for argument 'model_config'"),
    ],
)
def test_arguments_given_twice(serve: Serve, name: str, message: str) -> None:
    error = serve(DUMP).refusal(chat_template_kwargs={name: []})
    assert (error.status, error.message) == (400, message)
    assert error.path == f"chat_template_kwargs.{name}"


def test_self_is_given_twice(serve: Serve) -> None:
    assert serve(DUMP).refusal(chat_template_kwargs={"self": 1}).message.endswith("multiple values for argument 'self'")


def test_the_cohere_format_is_always_there(serve: Serve) -> None:
    assert serve(show("cohere_format")).text() == '"cmd4"'
    assert serve(show("cohere_format")).text(chat_template_kwargs={"cohere_format": "cmd3"}) == '"cmd3"'
    assert serve(show("cohere_format"), *defaults('{"cohere_format": "x"}')).text() == '"x"'


# Model names


@pytest.mark.parametrize("model", [None, "", "m"])
def test_models_that_are_served(serve: Serve, model: Any) -> None:
    assert serve(DUMP).accepts(model=model)
    assert serve(DUMP).accepts()


def test_another_model_is_not_found(serve: Serve) -> None:
    error = serve(DUMP).refusal(model="nope")
    assert (error.status, error.path) == (404, "model")
    assert error.message == "The model `nope` does not exist. Valid aliases: m."


# Tool choice against what the server can parse

REFUSED_AUTO = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
WITHOUT_PARSER = ("--max-model-len", "1000")
ONLY_PARSER = ("--tool-call-parser", "hermes")


@pytest.mark.parametrize("arguments", [WITHOUT_PARSER, ONLY_PARSER], ids=" ".join)
@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("absent", REFUSED_AUTO),
        ("auto", REFUSED_AUTO),
        ("required", 'tool_choice="required" requires --tool-call-parser to be set'),
        (NAMED, 'tool_choice=function "f" requires --tool-call-parser to be set'),
        ("none", None),
        (None, None),
    ],
    ids=str,
)
def test_tools_without_a_parser(serve: Serve, arguments: tuple[str, ...], choice: Any, message: str | None) -> None:
    fields = {"tools": [TOOL], **({} if choice == "absent" else {"tool_choice": choice})}
    server = serve(DUMP, *arguments)
    if message is None:
        assert server.accepts(**fields)
    else:
        assert server.refusal(**fields).message == message


@pytest.mark.parametrize("choice", ["auto", "required", NAMED, "none", None], ids=str)
def test_tools_with_a_parser(serve: Serve, choice: Any) -> None:
    assert serve(DUMP).accepts(tools=[TOOL], tool_choice=choice)


def test_without_a_stated_server_every_choice_is_fine() -> None:
    assert Renderer.load().render({"messages": [USER], "tools": [TOOL], "tool_choice": "required"}).text


# Templates and options of media in the request

UNTRUSTED = (
    "Chat template is passed with request, but --trust-request-chat-template is not set. "
    "Refused request with untrusted chat template."
)


@pytest.mark.parametrize("fields", [{"chat_template": "x"}, {"chat_template_kwargs": {"chat_template": "x"}}], ids=str)
def test_a_template_of_the_request_needs_trust(serve: Serve, fields: dict[str, Any]) -> None:
    error = serve(DUMP).refusal(**fields)
    assert (error.message, error.path) == (UNTRUSTED, "chat_template")
    assert serve(DUMP, "--trust-request-chat-template").accepts(**fields)
    assert Renderer.load().render({"messages": [USER], **fields}).text


@pytest.mark.parametrize("name", ["mm_processor_kwargs", "media_io_kwargs"])
def test_options_of_media_need_trust(serve: Serve, name: str) -> None:
    value = {"image": {"x": 1}}
    error = serve(DUMP).refusal(**{name: value})
    assert error.message.startswith(f"Per-request {name} are disabled by default")
    assert error.path == name
    for empty in ({}, None):
        assert serve(DUMP).accepts(**{name: empty})
    assert serve(DUMP, "--trust-request-mm-kwargs").accepts(**{name: value})


# Lengths


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"max_tokens": 1001},
            "max_tokens=1001 cannot be greater than max_model_len=1000. Please request fewer output tokens. "
            "(parameter=max_tokens, value=1001)",
        ),
        (
            {"max_tokens": 5, "max_completion_tokens": 2000},
            "max_completion_tokens=2000 cannot be greater than max_model_len=1000. Please request fewer output tokens. "
            "(parameter=max_completion_tokens, value=2000)",
        ),
        (
            {"truncate_prompt_tokens": 1001},
            "truncate_prompt_tokens=1001 cannot be greater than max_model_len = 1000. "
            "Please request a smaller truncation size. (parameter=truncate_prompt_tokens, value=1001)",
        ),
    ],
    ids=str,
)
def test_lengths_beyond_the_model(serve: Serve, fields: dict[str, Any], message: str) -> None:
    assert serve(DUMP, "--max-model-len", "1000").refusal(**fields).message == message


@pytest.mark.parametrize("fields", [{"max_tokens": 1000}, {"max_tokens": 2000, "max_completion_tokens": 5}], ids=str)
def test_lengths_within_the_model(serve: Serve, fields: dict[str, Any]) -> None:
    assert serve(DUMP, "--max-model-len", "1000").accepts(**fields)


# Ids from a prefill server


def forwarded(ids: Any) -> dict[str, Any]:
    return {"kv_transfer_params": {"prompt_token_ids": ids}}


def test_forwarded_ids_replace_the_prompt(serve: Serve) -> None:
    prompt = serve(DUMP).prompt(**forwarded([5, 6, 5]))
    assert (prompt.text, prompt.token_ids.tolist()) == (None, [5, 6, 5])


@pytest.mark.parametrize(
    "fields", [{"echo": True, **forwarded([5])}, forwarded(None), {"kv_transfer_params": {"x": 1}}]
)
def test_when_forwarded_ids_are_not_used(serve: Serve, fields: dict[str, Any]) -> None:
    assert serve(DUMP).ids(**fields) == serve(DUMP).ids()


@pytest.mark.parametrize("ids", [[], "5", [-1], [True], [1.0], ["5"]], ids=str)
def test_forwarded_ids_are_ids(serve: Serve, ids: Any) -> None:
    error = serve(DUMP).refusal(**forwarded(ids))
    assert error.message.startswith("`kv_transfer_params['prompt_token_ids']` must be a non-empty list of")


def test_forwarded_ids_do_not_save_a_request_that_is_refused(serve: Serve) -> None:
    server = serve("{{ raise_exception('no') }}", "--max-model-len", "1000")
    assert server.accepts(**forwarded([5]))  # the template is not asked
    assert server.refusal(tools=[TOOL], **forwarded([5])).message == REFUSED_AUTO
    assert server.refusal(max_tokens=1001, **forwarded([5])).message.startswith("max_tokens=1001 cannot be greater")


def test_media_beside_forwarded_ids_are_rendered(serve: Serve) -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}
    assert serve(DUMP).refusal(image, **forwarded([5])).message == "m is not a multimodal model"
