"""The conversation that a template sees."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pkv_lint.prompt import builtin
from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.template import ChatTemplates

Serve = Callable[..., Any]

DUMP = "{{ messages | tojson }}"
LOOP = "{% for m in messages %}{% for part in m.content %}{% endfor %}{% endfor %}"
DUMP_PARTS = DUMP + LOOP
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ROLES = ("system", "developer", "user", "assistant", "tool", "critic")


def text(value: str | None, **members: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **members}


def message(role: str, content: Any = "x", **members: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **members}


def seen(serve: Serve, *messages: dict[str, Any], parts: bool = False) -> list[dict[str, Any]]:
    """What the template is handed, members in their order."""
    found: list[dict[str, Any]] = json.loads(serve(DUMP_PARTS if parts else DUMP).text(*messages))
    return found


def content(serve: Serve, *messages: dict[str, Any], parts: bool = False) -> Any:
    return seen(serve, *messages, parts=parts)[-1]["content"]


# Members


def test_members_of_an_assistant_in_their_order(serve: Serve) -> None:
    sent = {"task": "t", "name": "n", "reasoning": "r", "tool_calls": [CALL], "content": "x", "role": "assistant"}
    [found] = seen(serve, sent)
    assert list(found) == ["role", "content", "tool_calls", "reasoning", "reasoning_content", "name", "task"]


def test_members_of_a_tool_message_in_their_order(serve: Serve) -> None:
    [found] = seen(serve, {"name": "n", "tool_call_id": "c", "content": "x", "role": "tool"})
    assert list(found.items()) == [("role", "tool"), ("content", "x"), ("tool_call_id", "c"), ("name", "n")]


def test_members_of_a_developer_message_in_their_order(serve: Serve) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    sent = {"tools": tools, "task": "t", "name": "n", "content": "x", "role": "developer"}
    found = serve(DUMP + "{# 'developer' #}").text(sent)
    expected = '[{"role": "developer", "content": "x", "name": "n", "task": "t", "tools": [{"function": {"name": "f"}'
    assert found.startswith(expected)
    assert serve(DUMP + "{# 'developer' #}").text(message("developer")).endswith('"content": "x", "tools": null}]')


@pytest.mark.parametrize(
    "name",
    ["refusal", "function_call", "audio", "thinking", "metadata", "cache_control", "annotations", "tool_call_id"],
)
def test_nothing_else_is_handed_on(serve: Serve, name: str) -> None:
    assert seen(serve, message("assistant", **{name: None})) == [message("assistant")]
    assert seen(serve, message("assistant", **{name: "x"})) == [message("assistant")]


@pytest.mark.parametrize("role", [role for role in ROLES if role != "assistant"])
def test_reasoning_and_calls_are_of_assistants_only(serve: Serve, role: str) -> None:
    sent = message(role, reasoning="r", tool_calls=[CALL])
    assert not {"reasoning", "reasoning_content", "tool_calls"} & seen(serve, sent)[0].keys()


def test_a_function_message_stays_with_its_name(serve: Serve) -> None:
    assert seen(serve, message("function", name="f")) == [message("function", name="f")]


@pytest.mark.parametrize("role", ROLES)
def test_a_name_is_kept_in_any_role(serve: Serve, role: str) -> None:
    assert seen(serve, message(role, name="n"))[0]["name"] == "n"


# Content as a string


@pytest.mark.parametrize(
    ("parts", "joined"),
    [
        ([text("a"), text("b")], "a\nb"),
        ([text(""), text("a"), text(""), text("b")], "a\nb"),
        ([text("a"), text(None)], "a"),
        ([{"type": "refusal", "refusal": "no"}, text("a")], "no\na"),
        ([{"type": "thinking", "thinking": "hm"}, text("a")], "hm\na"),
        ([text("a"), "b", {"type": "input_text", "text": "c"}], "a\nb\nc"),
        ([{"type": "tool_reference", "name": "f"}, text("a")], "f\na"),
        ([text("")], ""),
        ([], ""),
    ],
    ids=str,
)
@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_texts_are_joined_by_line_ends(serve: Serve, role: str, parts: list[Any], joined: str) -> None:
    assert content(serve, message(role, parts)) == joined


@pytest.mark.parametrize("sent", [{"content": None}, {"content": []}, {}])
def test_no_content_is_an_empty_string(serve: Serve, sent: dict[str, Any]) -> None:
    assert content(serve, {"role": "assistant", **sent}) == ""


def test_a_text_of_another_type_is_refused(serve: Serve) -> None:
    error = serve(DUMP).refusal(message("user", [text("a"), {"type": "input_text", "text": ["b"]}]))
    assert error.message == "sequence item 1: expected str instance, list found"
    assert error.path == "messages[0].content"


# Content as a list of parts


@pytest.mark.parametrize("role", [role for role in ROLES if role != "tool"])
@pytest.mark.parametrize("sent", ["x", ""])
def test_a_string_becomes_one_part(serve: Serve, role: str, sent: str) -> None:
    server = serve(DUMP_PARTS + "{# 'developer' #}")
    assert f'"content": [{{"type": "text", "text": "{sent}"}}]' in server.text(message(role, sent))


@pytest.mark.parametrize("sent", [{"content": None}, {"content": []}, {}])
def test_no_content_is_an_empty_list(serve: Serve, sent: dict[str, Any]) -> None:
    assert content(serve, {"role": "assistant", **sent}, parts=True) == []


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        (
            [text("a", cache_control={"type": "ephemeral"}, foo=1)],
            [text("a", cache_control={"type": "ephemeral"}, foo=1)],
        ),
        ([text("a", closed=True, refusal="x", name="n")], [text("a")]),
        ([text("a"), text(None), text("")], [text("a"), text("")]),
        ([{"type": "refusal", "refusal": "no", "x": 1}], [text("no", x=1)]),
        ([{"type": "thinking", "thinking": "hm", "closed": True}], [text("hm")]),
        ([text("a"), "b"], [text("a"), text("b")]),
        ([{"type": "tool_reference", "name": "f", "x": 1}], [{"type": "tool_reference", "name": "f"}]),
    ],
    ids=str,
)
def test_parts_and_their_members(serve: Serve, parts: list[Any], kept: list[Any]) -> None:
    assert content(serve, message("user", parts), parts=True) == kept


# Tool results


def test_text_results_are_a_string_even_where_parts_are_wanted(serve: Serve) -> None:
    assert content(serve, message("tool", [text("a"), text("b")]), parts=True) == "a\nb"
    assert content(serve, message("tool", "a"), parts=True) == "a"
    assert content(serve, {"role": "tool"}, parts=True) == ""


def test_empty_texts_stay_in_a_result_where_parts_are_wanted(serve: Serve) -> None:
    sent = message("tool", [text(""), text("a")])
    assert content(serve, sent, parts=True) == "\na"
    assert content(serve, sent) == "a"


def test_tool_references_keep_a_result_a_list(serve: Serve) -> None:
    sent = message("tool", [text("a"), {"type": "tool_reference", "name": "f"}])
    assert content(serve, sent, parts=True) == [text("a"), {"type": "tool_reference", "name": "f"}]
    assert content(serve, sent) == "a\nf"


# System text

HEADER = "x-anthropic-billing-header: cc_version=2"


@pytest.mark.parametrize(
    ("sent", "kept", "parts"),
    [
        (HEADER + "\nBe brief.\nAlways.", "Be brief.\nAlways.", [text("Be brief.\nAlways.")]),
        ([text(HEADER), text("Be brief.")], "Be brief.", [text("Be brief.")]),
        ([text("Be brief."), text(HEADER + "\nBye", x=1)], "Be brief.\nBye", [text("Be brief."), text("Bye", x=1)]),
        (HEADER, "", []),
        (" " + HEADER, " " + HEADER, [text(" " + HEADER)]),
    ],
    ids=str,
)
def test_the_billing_header_of_a_system_message(serve: Serve, sent: Any, kept: str, parts: list[Any]) -> None:
    assert content(serve, message("system", sent)) == kept
    assert content(serve, message("system", sent), parts=True) == parts


@pytest.mark.parametrize("role", ["user", "developer", "assistant"])
def test_the_billing_header_stays_in_other_roles(serve: Serve, role: str) -> None:
    assert content(serve, message(role, HEADER + "\nx")) == HEADER + "\nx"


# Reasoning


@pytest.mark.parametrize("reasoning", ["think", ""])
def test_reasoning_has_two_names(serve: Serve, reasoning: str) -> None:
    expected = message("assistant", reasoning=reasoning, reasoning_content=reasoning)
    assert seen(serve, message("assistant", reasoning=reasoning)) == [expected]
    assert seen(serve, message("assistant", reasoning_content=reasoning)) == [expected]


def test_no_reasoning_is_left_out(serve: Serve) -> None:
    assert seen(serve, message("assistant", reasoning=None)) == [message("assistant")]


# The developer role


@pytest.mark.parametrize("spelling", ["'developer'", '"developer"'])
def test_a_template_that_names_the_developer_sees_one(serve: Serve, spelling: str) -> None:
    assert '"role": "developer"' in serve(f"{DUMP}{{# {spelling} #}}").text(message("developer"))
    assert '"role": "system"' in serve(f"{DUMP}{{# developer #}}").text(message("developer"))


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([message("developer", "a")], [message("system", "a")]),
        (
            [message("system", "a"), message("developer", "b"), message("user", "c")],
            [message("system", "a\n\nb"), message("user", "c")],
        ),
        (
            [message("user", "a"), message("developer", "b", name="n", tools=[])],
            [message("system", "b"), message("user", "a")],
        ),
        (
            [message("developer", [text("a"), text("b")]), message("user", "c"), message("system", "d")],
            [message("system", "a\nb\n\nd"), message("user", "c")],
        ),
        (
            [message("developer", ""), message("user", "c"), message("system", "d")],
            [message("system", "d"), message("user", "c")],
        ),
    ],
    ids=str,
)
def test_other_templates_get_one_system_message_in_front(
    serve: Serve, messages: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    assert seen(serve, *messages) == expected


def test_merged_system_text_is_a_string_even_where_parts_are_wanted(serve: Serve) -> None:
    messages = [message("developer", [text("a"), text(""), text("b")]), message("user", "c"), message("system", "d")]
    assert seen(serve, *messages, parts=True)[0] == message("system", "a\n\nb\n\nd")
    assert seen(serve, *messages[:2], parts=True)[0]["content"] == [text("a"), text(""), text("b")]


def test_system_messages_stay_where_they_are_without_a_developer(serve: Serve) -> None:
    messages = [message("user"), message("system"), message("user"), message("system")]
    assert seen(serve, *messages) == messages


# Tool calls


def printed_call(serve: Serve, call: dict[str, Any]) -> str:
    printed: str = serve("{{ messages[0].tool_calls | tojson }}").text(message("assistant", tool_calls=[call]))
    return printed


def test_members_of_a_call_in_their_order(serve: Serve) -> None:
    function = {"x": None, "name": "f", "arguments": "{}"}
    call = {"index": 0, "type": "function", "y": 1, "function": function, "id": "c"}
    assert printed_call(serve, call) == (
        '[{"id": "c", "function": {"arguments": {}, "name": "f", "x": null}, "type": "function", "index": 0, "y": 1}]'
    )


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ("", "{}"),
        ("{}", "{}"),
        ('{"b": 1, "a": 2}', '{"b": 1, "a": 2}'),
        ('{"a": 1, "b": 0, "a": 2}', '{"a": 2, "b": 0}'),
        (' {"a"\n:\t1 } ', '{"a": 1}'),
        ('{"a": 1.50, "b": 1e3, "c": -0, "d": -0.0}', '{"a": 1.5, "b": 1000.0, "c": 0, "d": -0.0}'),
        ('{"a": 123456789012345678901234567890}', '{"a": 123456789012345678901234567890}'),
        (
            '{"a": NaN, "b": Infinity, "c": -Infinity, "d": 1e400}',
            '{"a": NaN, "b": Infinity, "c": -Infinity, "d": Infinity}',
        ),
        ('{"a": "\\u00e9\\ud83d\\ude00\\u003c"}', '{"a": "é😀<"}'),
        ('{"a": {"y": [1, {"x": null}]}}', '{"a": {"y": [1, {"x": null}]}}'),
        ("{'a': 1}", "{}"),
        ('{"a": 1', "{}"),
        ('{"a": 1} x', "{}"),
        ('{"a": "\n"}', "{}"),
        (" ", "{}"),
        ("[1]", "{}"),
        ("null", "{}"),
        ('"x"', "{}"),
        ("42", "{}"),
        ("true", "{}"),
    ],
)
def test_arguments_become_an_object(serve: Serve, arguments: str, printed: str) -> None:
    call = {**CALL, "function": {"name": "f", "arguments": arguments}}
    assert printed_call(serve, call) == CALL_TEXT.replace("ARGUMENTS", printed)


CALL_TEXT = '[{"id": "c", "function": {"arguments": ARGUMENTS, "name": "f"}, "type": "function"}]'


# Media


def test_media_on_a_text_model(serve: Serve) -> None:
    image = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}
    error = serve(DUMP).refusal(message("user", [text("a"), image]))
    assert error.message == "m is not a multimodal model"
    assert error.path == "messages[0].content[1]"


IMAGE = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}


@pytest.mark.parametrize(
    ("template", "interleave", "seen"),
    [
        (DUMP, False, '"<image>\\na\\nb"'),
        (DUMP, True, '"a\\n<image>\\nb"'),
        (
            DUMP_PARTS,
            False,
            '[{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]',
        ),
    ],
    ids=str,
)
def test_placeholders_of_a_model_that_takes_images(template: str, interleave: bool, seen: str) -> None:
    deployment = Deployment(interleave_mm_strings=interleave)
    renderer = Renderer(ChatTemplates(template), builtin.load()[1], deployment, multimodal=True)
    prompt = renderer.render({"messages": [message("user", [text("a"), IMAGE, text("b")])]})
    assert prompt.text == f'[{{"role": "user", "content": {seen}}}]'
    assert prompt.approximate  # how many tokens an image becomes, its processor knows
    assert not renderer.render({"messages": [message("user", [text("a")])]}).approximate


def test_embeddings_are_refused(serve: Serve) -> None:
    server = serve(DUMP)
    embeddings = {"type": "image_embeds", "image_embeds": "x"}
    assert server.refusal(message("user", [embeddings])).message == "The model is not multimodal."
    prompt = {"type": "prompt_embeds", "data": "x"}
    assert server.refusal(message("user", [prompt])).message == (
        "You must set `--enable-prompt-embeds` to input `prompt_embeds` (parameter=prompt_embeds)"
    )


@pytest.mark.parametrize(
    ("part", "complaint"),
    [
        ({"type": "file", "file": {"file_id": "f"}}, "Unsupported chat content part type: 'file'. Supported types: "),
        ({"text": "a"}, "Missing 'type' field in multimodal part. (parameter=type)"),
        (text("a", uuid="u"), "Missing 'type' field in multimodal part. (parameter=type)"),
        ({"type": 5, "text": "a"}, "Invalid 'type' field in multimodal part. (parameter=type)"),
    ],
    ids=str,
)
def test_parts_that_the_renderer_refuses(serve: Serve, part: dict[str, Any], complaint: str) -> None:
    assert serve(DUMP).refusal(message("user", [part, text("a")])).message.startswith(complaint)
