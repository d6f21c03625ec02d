"""Which chat template a request gets, and where templates are found."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.template import NO_TEMPLATE, ChatTemplates, directory_templates, model_directory, stated_template

Serve = Callable[..., Any]

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f"}}
TRUST = ("--trust-request-chat-template", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
CLI = "CLI\n."  # a word alone would be the name of a file
NAMED = ChatTemplates(tokenizer={"default": "DEFAULT", "tool_use": "TOOLS", "rag": "RAG"})


def chosen(templates: ChatTemplates, serve: Serve, **fields: Any) -> str:
    text: str = serve(templates, *TRUST).text(**fields)
    return text


# The order of choice


@pytest.mark.parametrize(
    ("stated", "fields", "text"),
    [
        (None, {}, "DEFAULT"),
        (None, {"tools": [TOOL]}, "TOOLS"),
        (CLI, {}, CLI),
        (CLI, {"tools": [TOOL]}, CLI),
        (CLI, {"chat_template": "REQUEST"}, "REQUEST"),
        (None, {"chat_template": "REQUEST", "tools": [TOOL]}, "REQUEST"),
        (None, {"chat_template": "rag"}, "RAG"),
        (CLI, {"chat_template": "tool_use"}, "TOOLS"),
        (CLI, {"chat_template": ""}, CLI),
        (None, {"chat_template": ""}, "DEFAULT"),
        (None, {"chat_template": "unknown"}, "unknown"),
        (None, {"chat_template_kwargs": {"chat_template": "KWARG"}}, "KWARG"),
        (None, {"chat_template_kwargs": {"chat_template": "rag"}}, "RAG"),
        (None, {"chat_template_kwargs": {"chat_template": None}}, "DEFAULT"),
        (CLI, {"chat_template_kwargs": {"chat_template": "KWARG"}}, CLI),
        (CLI, {"chat_template": "REQUEST", "chat_template_kwargs": {"chat_template": "KWARG"}}, "REQUEST"),
    ],
    ids=str,
)
def test_the_request_then_the_server_then_the_model(serve: Serve, stated: str | None, fields: Any, text: str) -> None:
    assert chosen(ChatTemplates(stated, tokenizer=NAMED.tokenizer), serve, **fields) == text


def test_one_template_of_a_model_has_no_names(serve: Serve) -> None:
    templates = ChatTemplates(tokenizer="ONLY")
    assert chosen(templates, serve) == "ONLY"
    assert chosen(templates, serve, tools=[TOOL]) == "ONLY"
    assert chosen(templates, serve, chat_template="default") == "default"


def test_the_template_of_a_processor_is_for_requests_without_tools(serve: Serve) -> None:
    templates = ChatTemplates(processor="PROCESSOR", tokenizer="TOKENIZER")
    assert chosen(templates, serve) == "PROCESSOR"
    assert chosen(templates, serve, tools=[TOOL]) == "TOKENIZER"
    assert chosen(ChatTemplates(CLI, "PROCESSOR", "TOKENIZER"), serve) == CLI


def test_without_any_template(serve: Serve) -> None:
    error = serve(ChatTemplates(), *TRUST).refusal()
    assert (error.status, error.message) == (400, NO_TEMPLATE)
    assert NO_TEMPLATE.startswith("As of transformers v4.44, default chat template is no longer allowed")
    no_default = ChatTemplates(tokenizer={"rag": "RAG"})
    assert chosen(no_default, serve, chat_template="rag") == "RAG"


def test_a_template_among_the_arguments_does_not_say_how_content_looks(serve: Serve) -> None:
    printing = "{{ messages[0].content | tojson }}"
    looping = printing + "{% for m in messages %}{% for part in m.content %}{% endfor %}{% endfor %}"
    templates = ChatTemplates(tokenizer=printing)
    assert chosen(templates, serve, chat_template=looping) == '[{"type": "text", "text": "hi"}]'
    assert chosen(templates, serve, chat_template_kwargs={"chat_template": looping}) == '"hi"'


@pytest.mark.parametrize("template", [5, True], ids=str)
def test_a_template_is_a_string(serve: Serve, template: Any) -> None:
    server = serve(ChatTemplates(tokenizer="ONLY"), *TRUST)
    assert not server.accepts(chat_template=template)
    error = server.refusal(chat_template_kwargs={"chat_template": template})
    assert error.message == "Can't compile non template nodes"


# Files


def test_line_ends_of_a_template_file(tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_bytes(b"a\r\n{{ messages | length }}\r\nb\rc\r\n")
    assert stated_template(str(file)) == "a\n{{ messages | length }}\nb\nc\n"
    # Jinja drops one line end at the end.
    assert Renderer.load(chat_template=str(file)).render({"messages": [USER]}).text == "a\n1\nb\nc"


def test_a_literal_template() -> None:
    assert stated_template("{{ messages }}") == "{{ messages }}"
    assert stated_template("a\nb") == "a\nb"


@pytest.mark.parametrize("name", ["missing.jinja", "no/such/file", "plain words", "x" * 5000, "a\0b"])
def test_what_is_neither_file_nor_template(name: str) -> None:
    with pytest.raises(InputError):
        stated_template(name)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "template.jinja"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="not a regular file"):
        stated_template(str(pipe))


def test_a_template_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        stated_template(str(file))


def model(folder: Path, **files: Any) -> Path:
    for name, value in files.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8", newline="")
    return folder


def test_a_template_in_the_configuration_of_the_tokenizer(tmp_path: Path) -> None:
    model(tmp_path, tokenizer_config__json={"chat_template": "T\r\n"})
    assert directory_templates(tmp_path) == ChatTemplates(tokenizer="T\r\n")


def test_named_templates_in_the_configuration(tmp_path: Path) -> None:
    templates = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}, "x", {"name": 5}]
    model(tmp_path, tokenizer_config__json={"chat_template": templates})
    assert directory_templates(tmp_path) == ChatTemplates(tokenizer={"default": "D", "tool_use": "T"})


def test_a_template_file_wins_over_the_configuration(tmp_path: Path) -> None:
    model(tmp_path, tokenizer_config__json={"chat_template": "OLD"}, chat_template__jinja="NEW\r\nx")
    assert directory_templates(tmp_path) == ChatTemplates(tokenizer="NEW\nx")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("TOOLS", encoding="utf-8")
    assert directory_templates(tmp_path) == ChatTemplates(tokenizer={"default": "NEW\nx", "tool_use": "TOOLS"})


def test_a_template_of_the_processor(tmp_path: Path) -> None:
    model(tmp_path, chat_template__json={"chat_template": "P"}, tokenizer_config__json={"chat_template": "T"})
    assert directory_templates(tmp_path) == ChatTemplates(processor="P", tokenizer="T")


def test_a_directory_without_templates(tmp_path: Path) -> None:
    assert directory_templates(tmp_path) == ChatTemplates()


def test_a_configuration_that_is_not_json(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not JSON") as caught:
        directory_templates(model(tmp_path, tokenizer_config__json="{"))
    assert str(tmp_path) in str(caught.value)


# Models


@pytest.mark.parametrize("name", ["/no/such/model", "./model", "a/b/c"])
def test_a_directory_that_is_not_there(name: str) -> None:
    with pytest.raises(InputError, match="no such model directory"):
        model_directory(name)


def test_a_name_that_is_no_hub_id() -> None:
    with pytest.raises(InputError, match="not a model directory, and not a hub id"):
        model_directory("not a model", offline=True)


def test_a_model_that_is_not_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="not in the local hub cache"):
        model_directory("nobody/nothing", offline=True)
