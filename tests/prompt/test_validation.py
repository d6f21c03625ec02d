"""Which bodies a server accepts, and that looking at the usual ones gives what pydantic gives."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pkv_lint.prompt import schema
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.messages import conversation
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.tools import normalise_tools
from pkv_lint.prompt.validation import is_usual, validated

Serve = Callable[..., Any]

EXAMPLES = int(os.environ.get("PKV_EXAMPLES", "500"))
"""How many bodies are made up per property; PKV_EXAMPLES=20000 looks closer."""
DUMP = "{{ messages | tojson }}"
USER = {"role": "user", "content": "hi"}
FUNCTION = {"name": "f", "arguments": "{}"}
CALL = {"id": "c", "type": "function", "function": FUNCTION}
TOOL = {"type": "function", "function": {"name": "f"}}
ROLES = ("system", "developer", "user", "assistant", "tool", "function", "critic")


def message(role: str, content: Any = "x", **members: Any) -> dict[str, Any]:
    if role == "tool":
        members = {"tool_call_id": "c", **members}
    return {"role": role, "content": content, **members}


def accepted(*messages: Any, **fields: Any) -> bool:
    try:
        body = validated({"messages": list(messages), **fields})
        conversation(body["messages"], "openai", text_model=None)
    except RenderError as error:
        assert error.status == 400
        return False
    return True


# Top-level fields


def test_unknown_fields_are_ignored() -> None:
    assert accepted(USER, whatever={"a": 1}, metadata={}, store=True)


@pytest.mark.parametrize("name", ["functions", "function_call"])
def test_legacy_functions_are_unknown_fields(serve: Serve, name: str) -> None:
    server = serve("{{ tools }}")
    assert server.text(**{name: [{"name": "f"}] if name == "functions" else "auto"}) == "None"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"tools": []},
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely. "
            "(parameter=tools)",
        ),
        ({"tool_choice": "auto"}, "When using `tool_choice`, `tools` must be set. (parameter=tool_choice)"),
        ({"tool_choice": "required"}, "When using `tool_choice`, `tools` must be set. (parameter=tool_choice)"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "The tool specified in `tool_choice` does not match any of the specified `tools` (parameter=tool_choice)",
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function"}},
            "Invalid value for `function`: `None` in `tool_choice`! Correct usage: "
            '`{"type": "function", "function": {"name": "my_function"}}` (parameter=tool_choice.function)',
        ),
        (
            {"tools": [TOOL], "tool_choice": {"function": {}}},
            "Expected field `name` in `function` in `tool_choice`! Correct usage: "
            '`{"type": "function", "function": {"name": "my_function"}}` (parameter=tool_choice.function.name)',
        ),
        (
            {"tools": [TOOL], "tool_choice": {"function": {"name": ""}}},
            "Invalid `name` in `function`: `` in `tool_choice`! Correct usage: "
            '`{"type": "function", "function": {"name": "my_function"}}` (parameter=tool_choice.function.name)',
        ),
        (
            {"tools": [TOOL], "tool_choice": "f"},
            'Invalid value for `tool_choice`: f! Only named tools, "none", "auto" or "required" are supported. '
            "(parameter=tool_choice)",
        ),
        (
            {"stream_options": {"include_usage": True}},
            "Stream options can only be defined when `stream=True`. (parameter=stream_options)",
        ),
        ({"cache_salt": ""}, "Parameter 'cache_salt' must be a non-empty string if provided. (parameter=cache_salt)"),
        ({"cache_salt": 5}, "Parameter 'cache_salt' must be a non-empty string if provided. (parameter=cache_salt)"),
        (
            {"cache_salt": "a@b"},
            "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\\\', or NUL. "
            "(parameter=cache_salt)",
        ),
        (
            {"continue_final_message": True, "add_generation_prompt": True},
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
        ),
        (
            {"response_format": {"type": "json_schema"}},
            "When response_format type is 'json_schema', the 'json_schema' field must be provided. "
            "(parameter=response_format)",
        ),
        (
            {"structured_outputs": {"json": {}, "regex": "a"}},
            "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').",
        ),
        (
            {"tools": [TOOL], "tool_choice": {"function": {"name": "f"}}, "structured_outputs": {"regex": "a"}},
            "You can only either use constraints for structured outputs or tools, not both.",
        ),
        (
            {"top_logprobs": 1},
            "when using `top_logprobs`, `logprobs` must be set to true. (parameter=top_logprobs)",
        ),
        (
            {"top_logprobs": -2},
            "`top_logprobs` must be a positive value or -1. (parameter=top_logprobs, value=-2)",
        ),
        ({"prompt_logprobs": "1"}, "`prompt_logprobs` must be an integer. (parameter=prompt_logprobs, value=1)"),
        (
            {"stream": True, "prompt_logprobs": 1},
            "`prompt_logprobs` are not available when `stream=True`. (parameter=prompt_logprobs)",
        ),
        (
            {"logprob_token_ids": [1]},
            "when using `logprob_token_ids`, `logprobs` must be set to true. (parameter=logprob_token_ids)",
        ),
    ],
    ids=str,
)
def test_refused_in_the_words_of_the_server(serve: Serve, fields: dict[str, Any], message: str) -> None:
    error = serve(DUMP).refusal(**fields)
    assert (error.status, error.message) == (400, message)


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "custom", "function": {"name": "f"}}]},
        {"tools": [{"type": "function", "function": {}}]},
        {"tools": [{"type": "function"}]},
        {"tools": ["f"]},
        {"tools": [{"function": {"name": "f", "parameters": "{}"}}]},
        {"tools": [TOOL], "tool_choice": 5},
        {"reasoning_effort": "extreme"},
        {"reasoning_effort": 1},
        {"documents": [{"title": 1}]},
        {"documents": "text"},
        {"truncate_prompt_tokens": -2},
        {"truncation_side": "up"},
        {"add_generation_prompt": None},
        {"add_generation_prompt": "perhaps"},
        {"seed": 2**63},
        {"max_tokens": 1.5},
        {"chat_template_kwargs": []},
        {"response_format": {}},
        {"response_format": {"type": "xml"}},
        {"structured_outputs": {}},
        {"model": 5},
        {"user": 5},
        {"session_id": 5},
        {"skip_special_tokens": None},
        {"min_tokens": None},
        {"thinking_token_budget": True},
        {"vllm_xargs": 5},
    ],
    ids=str,
)
def test_fields_of_a_wrong_type_are_refused(fields: dict[str, Any]) -> None:
    assert not accepted(USER, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": None},
        {"tool_choice": "none"},
        {"tools": [TOOL], "tool_choice": "none"},
        {"tools": None},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"stream_options": {}},
        {"cache_salt": None},
        {"documents": []},
        {"documents": None},
        {"reasoning_effort": None},
        {"max_tokens": "5"},
        {"max_tokens": 5.0},
        {"add_generation_prompt": "no"},
        {"seed": -(2**63)},
        {"logprobs": True, "top_logprobs": 3},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}},
        *({"reasoning_effort": effort} for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max")),
    ],
    ids=str,
)
def test_fields_that_are_accepted(fields: dict[str, Any]) -> None:
    assert accepted(USER, **fields)


@pytest.mark.parametrize(("tool", "status"), [({"type": "function"}, 500), (None, 400), ("f", 400)])
def test_a_named_choice_among_broken_tools(tool: Any, status: int) -> None:
    with pytest.raises(RenderError) as caught:
        validated({"messages": [USER], "tools": [tool], "tool_choice": {"function": {"name": "f"}}})
    assert caught.value.status == status


def test_the_last_of_two_equal_members_counts() -> None:
    body = json.loads('{"messages": 5, "messages": [{"role": "critic", "role": "user", "content": "hi"}]}')
    assert validated(body)["messages"] == [USER]


@pytest.mark.parametrize(
    "field",
    [
        {"max_tokens": 7},
        {"n": 2},
        {"stop": ["."]},
        {"response_format": {"type": "json_object"}},
        {"seed": 1},
        {"user": "u"},
        {"cache_salt": "s"},
        {"parallel_tool_calls": False},
        {"echo": True},
        {"temperature": 0.5},
    ],
    ids=str,
)
def test_these_fields_do_not_change_the_prompt(serve: Serve, field: dict[str, Any]) -> None:
    server = serve("{{ messages | tojson }}{{ tools | tojson }}{{ add_generation_prompt }}")
    assert server.ids(tools=[TOOL], **field) == server.ids(tools=[TOOL])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"),
        (
            {"max_tokens": 5, "max_completion_tokens": -1},
            "max_tokens must be at least 1, got -1. (parameter=max_tokens, value=-1)",
        ),
        ({"n": 0}, "n must be at least 1, got 0."),
        ({"temperature": 3}, "temperature must be in [0, 2], got 3.0. (parameter=temperature, value=3.0)"),
        ({"temperature": -1}, "temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)"),
        ({"top_p": 0}, "top_p must be in (0, 1], got 0.0. (parameter=top_p, value=0.0)"),
        ({"top_k": -2}, "top_k must be 0 (disable), or at least 1, got -2."),
        ({"min_p": 2}, "min_p must be in [0, 1], got 2.0."),
        ({"presence_penalty": 3}, "presence_penalty must be in [-2, 2], got 3.0."),
        ({"frequency_penalty": -3}, "frequency_penalty must be in [-2, 2], got -3.0."),
        ({"repetition_penalty": 0}, "repetition_penalty must be greater than zero, got 0.0."),
        ({"min_tokens": -1}, "min_tokens must be greater than or equal to 0, got -1."),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens must be less than or equal to max_tokens=8, got 9."),
        ({"stop": ["a", ""]}, "stop cannot contain an empty string."),
        (
            {"logit_bias": {"5": 1, "x": 2}},
            "logit_bias contains key(s) that cannot be converted to integer token IDs: ['x'] "
            "(parameter=logit_bias, value=['x'])",
        ),
        ({"temperature": 0, "n": 2}, "n must be 1 when using greedy sampling, got 2."),
    ],
    ids=str,
)
def test_sampling_that_a_stated_server_refuses(serve: Serve, fields: dict[str, Any], message: str) -> None:
    assert serve(DUMP).refusal(**fields).message == message
    assert Renderer.load().render({"messages": [USER], **fields}).text  # nothing is known of the server


# Messages


@pytest.mark.parametrize("role", ROLES)
def test_any_role_is_accepted(role: str) -> None:
    name = {"name": "f"} if role == "function" else {}
    assert accepted(message(role, **name))


def test_other_roles_reach_the_template(serve: Serve) -> None:
    assert serve("{{ messages[0].role }}").text(message("critic")) == "critic"


@pytest.mark.parametrize("role", [None, 5, ["user"]])
def test_a_role_is_a_string(role: Any) -> None:
    assert not accepted({"role": role, "content": "x"})


def test_a_message_has_a_role() -> None:
    assert not accepted({"content": "x"})


def test_an_empty_conversation(serve: Serve) -> None:
    error = serve(DUMP).renderer
    with pytest.raises(RenderError, match="Cannot apply chat template to an empty conversation"):
        error.render({"messages": []})


@pytest.mark.parametrize("messages", [None, 5, True, "hi", {"role": "user"}, [None], ["hi"], [[]]])
def test_messages_are_a_list_of_objects(messages: Any) -> None:
    with pytest.raises(RenderError):
        validated({"messages": messages})


def test_messages_are_required() -> None:
    with pytest.raises(RenderError):
        validated({})


@pytest.mark.parametrize(
    ("role", "members", "right"),
    [
        ("assistant", {}, True),
        ("function", {"name": "f"}, True),
        ("function", {}, False),
        ("user", {}, False),
        ("system", {}, False),
        ("tool", {}, False),
        ("developer", {}, False),
        ("critic", {}, False),
    ],
)
def test_null_content(role: str, members: dict[str, Any], right: bool) -> None:
    assert accepted(message(role, None, **members)) is right


@pytest.mark.parametrize("role", ROLES)
def test_absent_content_is_accepted(role: str) -> None:
    assert accepted({"role": role, "tool_call_id": "c"})


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("content", [5, 1.5, True, {"a": 1}, {"type": "text", "text": "x"}])
def test_numbers_and_objects_as_content(role: str, content: Any) -> None:
    assert not accepted(message(role, content))


@pytest.mark.parametrize("role", ROLES)
def test_an_empty_object_counts_as_an_empty_list_where_openai_takes_any_iterable(serve: Serve, role: str) -> None:
    server = serve("{{ messages[0].content | tojson }}")
    if role in ("function", "critic"):
        assert not server.accepts(message(role, {}))
    else:
        assert server.text(message(role, {})) == '""'


def test_a_tool_message_without_an_id_is_of_the_lax_type() -> None:
    assert not accepted({"role": "tool", "content": {}})
    assert not accepted({"role": "tool", "content": "x", "name": 5})
    assert accepted({"role": "tool", "content": ["a"]})


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer", "tool"])
@pytest.mark.parametrize(("name", "right"), [("bob", True), ("", True), (None, False), (5, False)])
def test_a_name_is_a_string(role: str, name: Any, right: bool) -> None:
    # A tool message has no name in OpenAI's type, so a wrong one is an extra there.
    assert accepted(message(role, name=name)) is (right or role == "tool")


def without(path: str) -> dict[str, Any]:
    call: dict[str, Any] = copy.deepcopy(CALL)
    *parents, last = path.split(".")
    target = call
    for parent in parents:
        target = target[parent]
    del target[last]
    return call


@pytest.mark.parametrize("path", ["id", "type", "function", "function.name", "function.arguments"])
def test_what_a_tool_call_needs(path: str) -> None:
    assert accepted(message("assistant", tool_calls=[CALL]))
    assert not accepted(message("assistant", tool_calls=[without(path)]))


@pytest.mark.parametrize("arguments", [{}, {"a": 1}, 5, None, ["x"], True])
def test_arguments_are_a_string(arguments: Any) -> None:
    call = {**CALL, "function": {**FUNCTION, "arguments": arguments}}
    assert not accepted(message("assistant", tool_calls=[call]))


def test_custom_calls_are_refused() -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}
    with pytest.raises(RenderError, match=r"only support assistant tool_calls of type 'function'"):
        conversation(
            validated({"messages": [message("assistant", tool_calls=[call])]})["messages"], "string", text_model="m"
        )


@pytest.mark.parametrize("calls", [[], None])
def test_empty_tool_calls_are_dropped(serve: Serve, calls: Any) -> None:
    assert serve(DUMP).text(message("assistant", tool_calls=calls)) == '[{"role": "assistant", "content": "x"}]'


# Content parts

TEXT_PART = {"type": "text", "text": "t"}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "part",
    [
        TEXT_PART,
        {"type": "refusal", "refusal": "r"},
        {"type": "thinking", "thinking": "t"},
        {"type": "tool_reference", "name": "f"},
    ],
    ids=lambda part: part["type"] if isinstance(part, dict) else part,
)
def test_parts_that_pass_in_every_role(role: str, part: dict[str, Any]) -> None:
    assert accepted(message(role, [part]))


@pytest.mark.parametrize("role", ["system", "user", "assistant", "developer", "tool"])
@pytest.mark.parametrize(
    "part",
    [
        "x",
        {"text": "x"},
        {"type": "input_text", "text": "x"},
        {"type": "output_text", "text": "x"},
        {"type": "text", "text": None},
    ],
    ids=str,
)
def test_parts_that_need_a_valid_one_beside_them(role: str, part: Any) -> None:
    assert not accepted(message(role, [part]))
    assert not accepted(message(role, [part, part]))
    # Beside a part of a known type vLLM's lax type wins, which lets the others pass; the renderer misses a type.
    untyped = isinstance(part, dict) and "type" not in part
    for mixed in ([part, TEXT_PART], [TEXT_PART, part]):
        assert accepted(message(role, mixed)) is not untyped


@pytest.mark.parametrize("role", ["function", "critic"])
def test_roles_of_the_lax_type_take_strings_as_parts(role: str) -> None:
    assert accepted(message(role, ["a", TEXT_PART]))
    assert accepted(message(role, ["a"]))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "part", [None, 5, [], {"type": "file", "file": {"file_id": "f"}}, {"type": "picture"}], ids=str
)
def test_parts_that_are_refused(role: str, part: Any) -> None:
    assert not accepted(message(role, [part]))
    assert not accepted(message(role, [TEXT_PART, part]))


@pytest.mark.parametrize("role", ["system", "user", "assistant", "developer"])
@pytest.mark.parametrize("name", ["reasoning", "refusal", "audio", "function_call", "task"])
def test_members_that_are_not_checked(role: str, name: str) -> None:
    assert accepted(message(role, **{name: 5}))


def test_reasoning_of_another_type_reaches_the_template(serve: Serve) -> None:
    assert serve("{{ messages[0].reasoning + 1 }}").text(message("assistant", reasoning=5)) == "6"


def test_unknown_members_survive_validation() -> None:
    sent = message("assistant", [{**TEXT_PART, "foo": 1}], tool_calls=[{**CALL, "index": 0}], bar=2)
    [kept] = validated({"messages": [sent], "n": 1.0})["messages"]
    assert kept["content"] == [{**TEXT_PART, "foo": 1}]
    assert kept["tool_calls"][0]["index"] == 0
    assert kept["bar"] == 2


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"reasoning_content": "old"}, {"reasoning": "old"}),
        ({"reasoning_content": "old", "reasoning": None}, {"reasoning": "old"}),
        ({"reasoning_content": "old", "reasoning": ""}, {"reasoning": ""}),
        ({"reasoning_content": "old", "reasoning": "new"}, {"reasoning": "new"}),
        ({"reasoning_content": None}, {}),
    ],
    ids=str,
)
def test_the_older_name_of_reasoning(sent: dict[str, Any], kept: dict[str, Any]) -> None:
    [found] = validated({"messages": [message("assistant", **sent)]})["messages"]
    assert found == message("assistant", **kept)


def test_the_body_stays_as_it_was() -> None:
    body = {"messages": [message("assistant", reasoning_content="r", tool_calls=[CALL])], "tools": [TOOL]}
    before = copy.deepcopy(body)
    validated(body)
    assert body == before


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"messages": [USER, {"role": "user", "content": 5}]}, "messages[1].content"),
        ({"messages": [USER], "documents": [{"title": 1}]}, "documents[0].title"),
        ({"messages": [USER], "tools": [TOOL, {"function": {}}]}, "tools[1].function.name"),
        ({"messages": [message("assistant", tool_calls=[without("id")])]}, "messages[0].tool_calls[0].id"),
    ],
    ids=str,
)
def test_a_refusal_names_the_place(body: dict[str, Any], path: str) -> None:
    with pytest.raises(RenderError) as caught:
        validated(body)
    assert caught.value.path == path


# The two ways of judging a body

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "a", "auto", "none", "low"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
texts = st.sampled_from(["", "a", "b\nc", "é"])
parts = st.fixed_dictionaries(
    {"type": st.just("text"), "text": texts}, optional={"cache_control": st.just({"type": "ephemeral"})}
)
calls = st.fixed_dictionaries(
    {
        "id": texts,
        "type": st.just("function"),
        "function": st.fixed_dictionaries({"name": texts, "arguments": st.sampled_from(["", "{}", '{"a": 1}', "["])}),
    },
    optional={"index": st.integers(0, 3)},
)
usual_tools = st.fixed_dictionaries(
    {
        "type": st.just("function"),
        "function": st.fixed_dictionaries(
            {"name": texts},
            optional={
                "description": texts | st.none(),
                "parameters": st.just({"type": "object"}) | st.none(),
                "strict": st.booleans() | st.none(),
                "x": values,
            },
        ),
    },
    optional={"cache_control": values},
)
contents = texts | st.lists(parts, max_size=3)


def usual_messages(role: str) -> st.SearchStrategy[dict[str, Any]]:
    more: dict[str, Any] = {"name": texts, "metadata": values, "annotations": values}
    required: dict[str, Any] = {"role": st.just(role), "content": contents}
    if role == "tool":
        required["tool_call_id"] = texts
    if role == "assistant":
        required["content"] = contents | st.none()
        more |= {
            "reasoning": texts | st.none(),
            "refusal": texts | st.none(),
            "tool_calls": st.lists(calls, max_size=2),
        }
        more |= {"audio": st.none(), "function_call": st.none()}
    return st.fixed_dictionaries(required, optional=more)


bodies = st.fixed_dictionaries(
    {
        "messages": st.lists(
            st.one_of(*map(usual_messages, ("system", "user", "developer", "assistant", "tool"))),
            min_size=1,
            max_size=3,
        )
    },
    optional={
        "model": texts | st.none(),
        "tools": st.lists(usual_tools, min_size=1, max_size=2),
        "temperature": st.sampled_from([0, 0.5, None]),
        "max_tokens": st.integers(1, 9) | st.none(),
        "stop": texts | st.lists(texts, max_size=2),
        "stream": st.booleans(),
        "seed": st.integers(-9, 9),
        "add_generation_prompt": st.booleans(),
        "documents": st.lists(st.dictionaries(texts, texts, max_size=2), max_size=2) | st.none(),
        "chat_template_kwargs": st.dictionaries(texts, values, max_size=2) | st.none(),
        "reasoning_effort": st.sampled_from(["low", "none", None]),
        "response_format": st.sampled_from([{"type": "text"}, {"type": "json_object"}, None]),
        "user": texts,
        "x": values,
    },
)
FIELDS = sorted(schema.ChatBody.model_fields)
MEMBERS = sorted(set().union(*(kind.__annotations__ for kind in (schema.AssistantMessage, schema.CustomMessage))))


@st.composite
def near_usual(draw: st.DrawFn) -> dict[str, Any]:
    """A usual body in which one thing is replaced, added or missing."""
    body: dict[str, Any] = copy.deepcopy(draw(bodies))
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            places.append((value, key))
            walk(value[key])

    walk(body)
    how = draw(st.sampled_from(["as it is", "replace", "remove", "field", "member"]))
    holder, key = draw(st.sampled_from(places))
    if how == "replace":
        holder[key] = draw(values)
    elif how == "remove":
        del holder[key]
    elif how == "field":
        body[draw(st.sampled_from(FIELDS))] = draw(values)
    elif how == "member":
        draw(st.sampled_from(body["messages"]))[draw(st.sampled_from(MEMBERS))] = draw(values)
    return body


def tagged(value: Any) -> str:
    """A text that tells apart what `==` does not (1 and True, order of members)."""
    return repr(value)


@given(near_usual())
@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_what_is_usual_at_sight_pydantic_leaves_alone(body: dict[str, Any]) -> None:
    if not is_usual(body):
        return
    judged = schema.check(body)
    try:
        known = validated(body)["messages"]
    except RenderError:
        return  # for a reason that has nothing to do with types
    for content_format in ("string", "openai"):
        seen, expected = (
            tagged(conversation(messages, content_format, text_model="m"))  # type: ignore[arg-type]
            for messages in (known, judged["messages"])
        )
        assert seen == expected
    if body.get("tools") is not None:
        assert tagged(normalise_tools(body["tools"])) == tagged(normalise_tools(judged["tools"]))
    for name in judged:
        if name not in ("messages", "tools") and not isinstance(judged[name], float):
            assert tagged(body[name]) == tagged(judged[name])


@pytest.mark.parametrize("number", range(1, 21))
def test_real_requests_are_usual(shared: Path, number: int) -> None:
    [file] = (shared / "data" / "requests").glob(f"{number:02}_*.json")
    body = json.loads(file.read_text(encoding="utf-8"))
    assert is_usual(validated(body)) is (number not in (10, 11))  # these two set explicit cache breakpoints


anything = st.recursive(
    scalars | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*FIELDS, *MEMBERS, "type", "text", "function", "a"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer.load()


@given(body=anything | near_usual())
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_nothing_but_a_refusal_leaks(renderer: Renderer, body: Any) -> None:
    for api in ("chat", "messages", "responses", None):
        try:
            renderer.render(body, api=api)
        except RenderError:
            continue
