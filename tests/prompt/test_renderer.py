"""From a body to ids: continuing a message, tokenising, truncation, errors, and a small golden set of our own."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers.processors import TemplateProcessing

from pkv_lint.prompt import builtin
from pkv_lint.prompt.errors import InputError, RenderError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.tokenizer import Tokenizer

Serve = Callable[..., Any]

USER = {"role": "user", "content": "hi"}
TURNS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<go>{% endif %}"
)
PARTS = "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}[{{ p.text }}]{% endfor %}</>{% endfor %}"
TRIMMED = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}"
CONTINUED = {"continue_final_message": True, "add_generation_prompt": False}


def said(content: Any, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": content}


# Continuing the final message


@pytest.mark.parametrize(
    ("template", "content", "text"),
    [
        (TURNS, "Once upon", "<user>hi</><assistant>Once upon"),
        (TURNS, "Once upon ", "<user>hi</><assistant>Once upon "),
        (TURNS, " Once\n", "<user>hi</><assistant> Once\n"),
        (TURNS, "", "<user>hi</><assistant>"),
        (TRIMMED, "Once upon", "<user>hi</><assistant>Once upon"),
        # A template that trims takes the space of the marker with it: then the end of the text goes too.
        (TRIMMED, "Once upon ", "<user>hi</><assistant>Once upon"),
        (TRIMMED, " Once upon", "<user>hi</><assistant>Once upon"),
        (TURNS, [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "<user>hi</><assistant>a\nb"),
        (PARTS, [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "<user>[hi]</><assistant>[a][b"),
        (PARTS, "a", "<user>[hi]</><assistant>[a"),
        (
            PARTS,
            [{"type": "text", "text": "a"}, {"type": "tool_reference", "name": "f"}],
            "<user>[hi]</><assistant>[a",
        ),
    ],
    ids=str,
)
def test_the_final_message_is_left_open(serve: Serve, template: str, content: Any, text: str) -> None:
    assert serve(template).text(USER, said(content), **CONTINUED) == text


def test_a_message_of_the_user_can_be_continued(serve: Serve) -> None:
    assert serve(TURNS).text(said("Tell me", "user"), **CONTINUED) == "<user>Tell me"


def test_only_the_last_marker_counts(serve: Serve) -> None:
    marked = "a CONTINUE_FINAL_MESSAGE_TAG b"
    assert serve(TURNS).text(said(marked), said("c"), **CONTINUED) == f"<assistant>{marked}</><assistant>c"
    assert serve(TURNS).text(said(marked), **CONTINUED) == f"<assistant>{marked}"


@pytest.mark.parametrize(
    ("template", "message", "complaint"),
    [
        (PARTS, said(None), "continue_final_message is set but we could not find any text to continue"),
        (PARTS, {"role": "assistant"}, "continue_final_message is set but we could not find any text to continue"),
        (PARTS, said([]), "continue_final_message is set but we could not find any text to continue"),
        (TURNS + "{# #}", said("x", "critic"), None),
        (
            "{{ messages | length }}",
            said("x"),
            'continue_final_message is set to "content" but this is not an accepted',
        ),
        ("{{ messages[0].content }}", said("x"), "continue_final_message is set but the final message does not appear"),
        (
            "{{ messages[-1].content | upper }}",
            said("x"),
            "continue_final_message is set but the final message does not appear",
        ),
        (
            "{{ messages[-1].content[:4] }}",
            said("xxxxxx"),
            "continue_final_message is set but the final message does not",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_continued(serve: Serve, template: str, message: dict[str, Any], complaint: str | None) -> None:
    server = serve(template)
    if complaint is None:
        assert server.accepts(USER, message, **CONTINUED)
    else:
        assert server.refusal(USER, message, **CONTINUED).message.startswith(complaint)


def test_null_content_is_an_empty_string_to_continue_where_strings_are_wanted(serve: Serve) -> None:
    assert serve(TURNS).text(USER, said(None), **CONTINUED) == "<user>hi</><assistant>"


def test_the_generation_prompt_must_be_off(serve: Serve) -> None:
    server = serve(TURNS)
    default = server.refusal(said("x"), continue_final_message=True)
    assert default.message.startswith("continue_final_message and add_generation_prompt are not compatible.")
    both = server.refusal(said("x"), continue_final_message=True, add_generation_prompt=True)
    assert both.message == "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
    assert server.text(said("x"), continue_final_message=False) == "<assistant>x</><go>"


# Tokenising


@pytest.fixture(scope="module")
def framing() -> Tokenizer:
    """The built-in vocabulary with a token put before every text."""
    first = "<|endoftext|>"
    tokenizer = tokenizers.Tokenizer.from_file(str(Path(builtin.__file__).with_name("tokenizer.json")))
    special = [(first, tokenizer.token_to_id(first))]
    tokenizer.post_processor = TemplateProcessing(single=f"{first} $A", special_tokens=special)
    return Tokenizer(tokenizer, {"bos_token": first})


def test_no_token_is_added_beyond_the_template(serve: Serve, framing: Tokenizer) -> None:
    [bos] = framing.encode("<|endoftext|>").tolist()
    content = framing.encode("hi").tolist()
    server = serve("{{ messages[0].content }}", tokenizer=framing)
    assert server.ids() == content
    assert server.ids(add_special_tokens=False) == content
    assert server.ids(add_special_tokens=True) == [bos, *content]


def test_a_template_that_prints_the_first_token_gets_it_twice(serve: Serve, framing: Tokenizer) -> None:
    [bos] = framing.encode("<|endoftext|>").tolist()
    server = serve("{{ bos_token }}{{ messages[0].content }}", tokenizer=framing)
    assert server.ids()[:2] != [bos, bos]
    assert server.ids(add_special_tokens=True)[:2] == [bos, bos]


def test_special_tokens_in_user_text_become_special(serve: Serve, vocabulary: Tokenizer) -> None:
    [end] = vocabulary.encode("<|im_end|>").tolist()
    assert serve("{{ messages[0].content }}").ids(said("a<|im_end|>b", "user")).count(end) == 1


def test_ids_are_those_of_the_whole_text(serve: Serve, vocabulary: Tokenizer) -> None:
    prompt = serve(TURNS).prompt(USER, said("héllo <|im_end|> 12\n\n x"), USER)
    assert prompt.token_ids.typecode == "i"
    assert vocabulary.decode(prompt.token_ids) == prompt.text


def test_ids_made_by_transformers_have_no_token_added(serve: Serve, framing: Tokenizer) -> None:
    prompt = Renderer.load(chat_template="{{ messages[0].content }}\n")
    assert prompt.render({"messages": [USER], "chat_template_kwargs": {"tokenize": True}}).text == "hi"
    server = serve("{{ messages[0].content }}", tokenizer=framing)
    tokenised = server.renderer.render(
        {"messages": [USER], "add_special_tokens": True, "chat_template_kwargs": {"tokenize": True}}
    )
    assert tokenised.token_ids == framing.encode("hi")


# Truncation

LETTERS = "a b c d e f g h i"


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, slice(None)),
        ({"truncate_prompt_tokens": None}, slice(None)),
        ({"truncate_prompt_tokens": 3}, slice(-3, None)),
        ({"truncate_prompt_tokens": 3, "truncation_side": "left"}, slice(-3, None)),
        ({"truncate_prompt_tokens": 3, "truncation_side": "right"}, slice(0, 3)),
        ({"truncate_prompt_tokens": 100}, slice(None)),
        ({"truncate_prompt_tokens": -1}, slice(None)),
        ({"truncation_side": "right"}, slice(None)),
    ],
    ids=str,
)
def test_truncation(serve: Serve, vocabulary: Tokenizer, fields: dict[str, Any], kept: slice) -> None:
    whole = vocabulary.encode(LETTERS).tolist()
    assert len(whole) == 9
    assert serve("{{ messages[0].content }}").ids(said(LETTERS, "user"), **fields) == whole[kept]


def test_minus_one_keeps_what_leaves_room_for_one_token(vocabulary: Tokenizer) -> None:
    whole = vocabulary.encode(LETTERS)
    limited = Renderer.load(
        chat_template="{{ messages[0].content }}\n",
        vllm_args="--max-model-len 6",
        tokenizer=str(Path(builtin.__file__).parent),
    )
    body = {"messages": [said(LETTERS, "user")], "truncate_prompt_tokens": -1}
    assert limited.render(body).token_ids == whole[-5:]
    assert limited.render({**body, "truncation_side": "right"}).token_ids == whole[:5]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"truncate_prompt_tokens": 3}, [0, 8, 9]),
        ({"truncate_prompt_tokens": 1}, [0]),
        ({"truncate_prompt_tokens": 3, "truncation_side": "left"}, [7, 8, 9]),
        ({"truncate_prompt_tokens": 3, "truncation_side": "right"}, [0, 1, 2]),
        ({"truncate_prompt_tokens": 20}, list(range(10))),
    ],
    ids=str,
)
def test_truncation_around_an_added_token(
    serve: Serve, framing: Tokenizer, fields: dict[str, Any], kept: list[int]
) -> None:
    whole = framing.encode(LETTERS, add_special_tokens=True).tolist()
    server = serve("{{ messages[0].content }}", tokenizer=framing)
    prompt = server.prompt(said(LETTERS, "user"), add_special_tokens=True, **fields)
    assert prompt.token_ids.tolist() == [whole[place] for place in kept]
    # The letters stand at every second character; the added token stands for none.
    starts = [max(2 * place - 3, 0) for place in kept]
    assert [start for start, _ in prompt.token_spans] == starts


def test_a_prompt_that_is_too_long(serve: Serve) -> None:
    server = serve("{{ messages[0].content }}", "--max-model-len", "8")
    error = server.refusal(said(LETTERS, "user"))
    assert error.status == 400
    assert error.message == (
        "This model's maximum context length is 8 tokens. However, your prompt contains at least 9 input tokens, which "
        "exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
        "(parameter=input_tokens, value=9)"
    )


def test_a_prompt_that_leaves_no_room(serve: Serve) -> None:
    server = serve("{{ messages[0].content }}", "--max-model-len", "9")
    error = server.refusal(said(LETTERS, "user"))
    assert error.message == "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"
    assert server.accepts(said(LETTERS[:-2], "user"))


@pytest.mark.parametrize("fields", [{"truncate_prompt_tokens": 0}, {}], ids=str)
def test_an_empty_prompt(serve: Serve, fields: dict[str, Any]) -> None:
    content = "x" if fields else ""
    server = serve("{{ messages[0].content }}")
    assert server.refusal(said(content, "user"), **fields).message == "No token_ids rendered"


# Errors


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('Only so and so.') }}", "Only so and so."),
        ("{{ 1 + 'a' }}", "unsupported operand type(s) for +: 'int' and 'str'"),
        ("{{ unknown.member }}", "'unknown' is undefined"),
        ("{{ messages[5].role }}", "list object has no element 5"),
        ("{{ messages[0].nothing.more }}", "'dict object' has no attribute 'nothing'"),
        ("{{ messages.append(1) }}", "access to attribute 'append' of 'list' object is unsafe."),
        ("{% for m in 5 %}{% endfor %}", "'int' object is not iterable"),
        ("{{ unknown | tojson }}", "Object of type Undefined is not JSON serializable"),
        ("{% if %}", "Expected an expression, got 'end of statement block'"),
        ("{% for m in messages %}", "Unexpected end of template."),
    ],
)
def test_errors_of_a_template(serve: Serve, template: str, message: str) -> None:
    # A template that does not parse keeps a server from starting, so it comes with the request.
    error = serve("x\n", "--trust-request-chat-template").refusal(chat_template=template)
    assert (error.status, error.from_template) in ((400, True), (400, False))
    assert error.message.startswith(message)


@pytest.mark.parametrize(
    ("said", "answered"),
    [
        (" no\n", "no"),
        ("see /usr/lib/x.y and /a/b/c.txt, a/b/c.txt /x/y/", "see <path> and <path>, a<path> /x/y/"),
        ("alternate user/assistant/user/assistant/...", "alternate user/assistant/user/assistant/..."),
        ("<method at 0x7f00>", "<method>"),
    ],
)
def test_addresses_and_paths_are_cut_out_of_messages(serve: Serve, said: str, answered: str) -> None:
    server = serve("{{ raise_exception(messages[0].content) }}", "--trust-request-chat-template")
    assert server.refusal({"role": "user", "content": said}).message == answered
    assert server.refusal({"role": "user", "content": "/a" * 10**6}).message


@pytest.mark.parametrize("place", ["content", "tool", "system"])
def test_lone_surrogates_are_refused(serve: Serve, place: str) -> None:
    server = serve("{{ messages | tojson }}{{ tools | tojson }}")
    lone = "\ud800"
    tools = [{"type": "function", "function": {"name": "f", "description": lone}}] if place == "tool" else None
    message = said(lone if place != "tool" else "x", "system" if place == "system" else "user")
    assert server.refusal(message, **({"tools": tools} if tools else {})).status == 400


def test_an_error_is_one_line_with_its_place() -> None:
    with pytest.raises(RenderError) as caught:
        Renderer.load().render({"messages": [{"role": "user", "content": 5}]})
    assert str(caught.value).startswith("messages[0].content: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("body", [None, [], "x", 5, [USER]])
def test_a_request_is_an_object(body: Any) -> None:
    with pytest.raises(RenderError):
        Renderer.load().render(body)


# Variables of the environment


def test_the_clock_is_the_one_given(serve: Serve) -> None:
    source = "{{ strftime_now('%d %b %Y %H:%M:%S') }}"
    assert serve(source).text() == "09 Mar 2026 14:05:07"
    renderer = Renderer.load(chat_template=source)
    assert renderer.render({"messages": [USER]}, datetime(2027, 1, 2, 3, 4, 5)).text == "02 Jan 2027 03:04:05"


def test_names_of_roles_and_templates_reach_the_text_as_they_are(serve: Serve) -> None:
    assert serve("{{ messages | tojson }}").text(said("<é & 'x' \u2028>", "user")) == (
        '[{"role": "user", "content": "<é & \'x\' \u2028>"}]'
    )


# A golden set of our own: what a person works out from the rules

CHATML = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}
    {{- '# Tools' }}
    {%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' and tools and loop.first %}{% continue %}{% endif %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.reasoning_content %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}
    {{- message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- '<call>' + call.function.name + ' ' + (call.function.arguments | tojson) + '</call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is false %}{{ '<think></think>' }}{% endif %}
{%- endif %}
"""
INSTRUCT = """\
{{ bos_token }}{% for message in messages %}
{% if message.role == 'user' %}
[INST] {{ message.content | trim }} [/INST]
{% elif message.role == 'assistant' %}
 {{ message.content | trim }}{{ eos_token }}
{% else %}
{{ raise_exception('Only user and assistant roles are supported!') }}
{% endif %}
{% endfor %}
"""
WEATHER = {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}}
OWN = [
    (CHATML, {"messages": [USER]}, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"),
    (
        CHATML,
        {"messages": [said("Be brief.", "system"), USER], "reasoning_effort": "none"},
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n<think></think>",
    ),
    (
        CHATML,
        {
            "messages": [
                said("Be brief.", "developer"),
                USER,
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "look",
                    "tool_calls": [
                        {
                            "id": "c",
                            "type": "function",
                            "function": {"name": "weather", "arguments": '{"b": 1e2, "a": "\\u00e9"}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "rain"}]},
            ],
            "tools": [{"function": {**WEATHER, "x": 1}, "type": "function", "y": 2}],
        },
        "<|im_start|>system\nBe brief.\n\n# Tools\n"
        '{"type": "function", "function": {"name": "weather", "description": "Of a city.", "parameters": '
        '{"type": "object"}}}<|im_end|>\n'
        "<|im_start|>user\nhi<|im_end|>\n"
        '<|im_start|>assistant\n<think>look</think><call>weather {"b": 100.0, "a": "é"}</call><|im_end|>\n'
        "<|im_start|>tool\nrain<|im_end|>\n"
        "<|im_start|>assistant\n",
    ),
    (
        CHATML,
        {"messages": [USER, said("Once ")], **CONTINUED},
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nOnce ",
    ),
    (
        INSTRUCT,
        {"messages": [said(" a ", "user"), said("b"), said([{"type": "text", "text": "c"}], "user")]},
        "[INST] a [/INST]\n b<|im_end|>\n[INST] c [/INST]\n",
    ),
    (INSTRUCT, {"messages": [said("a", "system")]}, None),
]


@pytest.mark.parametrize(("template", "body", "text"), OWN, ids=range(len(OWN)))
def test_prompts_worked_out_by_hand(serve: Serve, template: str, body: dict[str, Any], text: str | None) -> None:
    fields = json.loads(json.dumps(body))
    messages = fields.pop("messages")
    server = serve(template)
    if text is None:
        assert server.refusal(*messages, **fields).message == "Only user and assistant roles are supported!"
    else:
        assert server.text(*messages, **fields) == text


# Putting a renderer together


def test_with_nothing_named_the_layout_is_built_in() -> None:
    renderer = Renderer.load()
    assert (renderer.layout, renderer.approximate) == ("builtin", True)
    assert renderer.render({"messages": [USER]}).approximate


def test_a_template_alone_makes_exact_text_and_approximate_tokens() -> None:
    renderer = Renderer.load(chat_template="{{ bos_token }}{{ eos_token }}{{ messages[0].content }}\n")
    assert (renderer.layout, renderer.approximate) == ("model", True)
    assert renderer.render({"messages": [USER]}).text == "hi"  # special tokens are not known


def test_a_model_directory_makes_exact_prompts(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        source = Path(builtin.__file__).with_name(name)
        (tmp_path / name).write_bytes(source.read_bytes())
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}{{ eos_token }}", encoding="utf-8")
    renderer = Renderer.load(model=str(tmp_path))
    assert (renderer.layout, renderer.approximate) == ("model", False)
    assert renderer.render({"messages": [USER]}).text == "hi<|im_end|>"
    stated = Renderer.load(vllm_args=f"vllm serve {tmp_path} --chat-template '{{{{ 1 }}}}' --max-model-len 100")
    assert stated.render({"messages": [USER]}).text == "1"
    named = Renderer.load(model=str(tmp_path), chat_template="{{ 2 }}", vllm_args="--chat-template '{{ 1 }}'")
    assert named.render({"messages": [USER]}).text == "2"


def test_a_directory_without_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("x", encoding="utf-8")
    with pytest.raises(InputError, match="no tokenizer there"):
        Renderer.load(model=str(tmp_path))


def test_a_tokenizer_without_a_template() -> None:
    with pytest.raises(InputError, match="there is no chat template"):
        Renderer.load(tokenizer=str(Path(builtin.__file__).with_name("tokenizer.json")))
