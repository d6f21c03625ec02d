"""Chat templates render as in transformers' environment, with its errors."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import pytest
from jinja2 import meta
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.jinja.environment import Template, compile_template
from pkv_lint.prompt.jinja.limits import Limits

NOW = datetime(2026, 7, 1, 9, 30)
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": 'For a "place", näh,\nor later',
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
MESSAGES = [
    {"role": "system", "content": "Be kind.\n"},
    {"role": "user", "content": " Weather in Zürich? <b> & 'quotes'\n"},
    {
        "role": "assistant",
        "content": "<think>\nwell\n</think>\n\nLet me see.",
        "tool_calls": [
            {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich"}}}
        ],
    },
    {"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": '{"sky": "clear"}'},
    {"role": "assistant", "content": "Clear."},
    {"role": "user", "content": "Thanks"},
]


def render(source: str, **variables: Any) -> str:
    return compile_template(source).render(variables, NOW)


def unlimited() -> ImmutableSandboxedEnvironment:
    """Jinja's own environment, set up as transformers does."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(
        x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = NOW.strftime
    return environment


def outcome(render: Any) -> str:
    try:
        return str(render())
    except RenderError as error:
        return f"error: {error}"
    except Exception as error:
        return f"error: {' '.join(str(error).split())}"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% if true %}\n  x\n{% endif %}\ny", "  x\ny"),
        ("  {% set x = 1 %}\n{{ x }}", "1"),
        ("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "02345678"),
        ("{% for i in range(9) %}{% if i > 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("{% generation %}a{{ x }}{% endgeneration %}b", "a1b"),
        ("{% set y = 1 %}{% generation %}{% set y = 2 %}{{ y }}{% endgeneration %}{{ y }}", "21"),
        ("{{ strftime_now('%d %b %Y %H:%M') }}", "01 Jul 2026 09:30"),
        ("{{ {'b': 'é<', 'a': [1, true, none]} | tojson }}", '{"b": "é<", "a": [1, true, null]}'),
        ("{{ {'b': 1} | tojson(indent=2) }}", '{\n  "b": 1\n}'),
        ("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]"),
        ("{{ 'é' | tojson(ensure_ascii=true) }}", '"\\u00e9"'),
        ("{{ bos_token }}x", "x"),
        ("{{ {'a': x, 'b': 'c'} }}", "{'a': 1, 'b': 'c'}"),
        ("{{ '<' | safe + '<' }}", "<&lt;"),
        ("{{ '{} {a}'.format(1, a='x') }}|{{ '%s-%03d' % ('x', 7) }}|{{ '%s' | format('y') }}", "1 x|x-007|y"),
        ("{{ [3, 1, 2] | sort | join(', ') }}{{ 'a b'.split() | last }}", "1, 2, 3b"),
        ("{% macro f(x) %}<{{ x }}{{ caller() }}>{% endmacro %}{% call f(1) %}body{% endcall %}", "<1body>"),
        ("{% block a %}x{% endblock %}{{ self.a() }}", "xx"),
        ("{% for x in [[1, [2]]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}", "12"),
        ("{% filter upper %}a{{ 'b' }}{% endfilter %}{% set x %}c{% endset %}{{ x ~ 1 ~ none }}", "ABc1None"),
        ("{% autoescape true %}{{ '<' ~ (s | safe) }}{% endautoescape %}", "&lt;<"),
        ("{{ 'b' in {'b': 1} }}{{ 2 in [1, 2] }}{{ 'x' not in 'xyz' }}{{ 1 < 2 < 3 }}", "TrueTrueFalseTrue"),
        ("{{ {'a': 1}.items() - {'a': 1}.items() }}{{ 7 - 2 * 2 ** 2 % 3 }}", "set()5"),
        ("{{ 'abc'[::-1] }}{{ [1, 2, 3][1:] }}{{ 'a,b'.split(',')[-1] }}", "cba[2, 3]b"),
    ],
)  # fmt: skip
def test_text(source: str, text: str) -> None:
    assert render(source, x=1, s="<") == text
    if "generation" not in source:
        assert unlimited().from_string(source).render(x=1, s="<") == text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ bos_token + 'x' }}", "'bos_token' is undefined"),
        ("{{ messages.append(1) }}", "access to attribute 'append' of 'list' object is unsafe."),
        ("{{ 'a' + {} }}", 'can only concatenate str (not "dict") to str'),
        ("{{ [] + 'a' }}", 'can only concatenate list (not "str") to list'),
        ("{% for x in none %}{% endfor %}", "'NoneType' object is not iterable"),
        ("{{ messages[0].x.y }}", "'dict object' has no attribute 'x'"),
        ("{{ messages[9].x }}", "list object has no element 9"),
        ("{{ messages.startswith('x') }}", "'list object' has no attribute 'startswith'"),
        ("{{ none.properties.x }}", "'None' has no attribute 'properties'"),
        ("{{ messages | map('upper') | tojson }}", "Object of type generator is not JSON serializable"),
        ("{{ ('x' | safe) + none }}", "unsupported operand type(s) for +: 'Markup' and 'NoneType'"),
        ("{{ raise_exception('System role not supported') }}", "System role not supported"),
        ("{% include 'x' %}", "no loader for this environment specified"),
        ("{% if x is nothing %}{% endif %}", "No test named 'nothing' found."),
    ],
)
def test_the_message_of_an_error_is_the_server_s(source: str, message: str) -> None:
    template = compile_template(source)
    for run in (template.render, template.render_traced):
        with pytest.raises(RenderError) as refused:
            run({"messages": [{"role": "user"}]}, NOW)
        assert refused.value.message == message
        assert refused.value.from_template


@pytest.mark.parametrize("source", ["{% for %}", "{{ x", "{% if x %}", "{{ x | nothing }}", "{% endfor %}"])
def test_what_does_not_parse_is_an_error(source: str) -> None:
    with pytest.raises(RenderError) as refused:
        compile_template(source)
    assert refused.value.from_template
    assert "\n" not in str(refused.value)


def test_undeclared_variables_are_those_jinja_finds() -> None:
    source = "{% set a = b %}{{ a }}{{ c.d }}{{ strftime_now('%d') }}{% for e in f %}{{ e }}{% endfor %}{{ loop }}"
    found = meta.find_undeclared_variables(unlimited().parse(source))
    # vLLM looks for them where the functions that transformers adds are not known yet.
    assert compile_template(source).undeclared == found | {"strftime_now"} == {"b", "c", "f", "loop", "strftime_now"}


def test_requests_that_are_nested_deeply_are_refused() -> None:
    tools: Any = []
    for _ in range(100_000):
        tools = [tools]
    for source in ("{{ tools | tojson }}", "{{ tools }}", "{{ tools | tojson(indent=1) }}", "{{ tools == [tools] }}"):
        with pytest.raises(RenderError, match="recursion"):
            render(source, tools=tools)
    while tools:  # taken down by hand: the garbage collector would recur as well
        tools = tools[0]


def test_a_prompt_of_a_million_tokens_passes() -> None:
    content = "Lorem ipsum dolor sit amet. " * 180_000
    source = "{% for m in messages %}{{ '<' + m.role + '>' + m.content.strip() + '\n' }}{% endfor %}"
    assert len(render(source, messages=[{"role": "user", "content": content}])) > 5_000_000


def test_a_long_conversation_gets_more_time() -> None:
    source = "{% for m in messages %}{{ m.content ~ m.content }}{% endfor %}"
    messages = [{"role": "user", "content": "Hi"}] * 30_000
    limits = Limits(seconds=0.0001)
    assert len(Template(source, limits).render({"messages": messages}, NOW)) == 120_000
    with pytest.raises(RenderError, match="seconds"):
        Template(source, Limits(seconds=0.0001, seconds_per_message=0)).render({"messages": messages}, NOW)


def test_every_render_has_its_own_time_of_day() -> None:
    template = compile_template("{{ strftime_now('%Y') }}")
    assert [template.render({}, datetime(year, 1, 1)) for year in (2025, 2026)] == ["2025", "2026"]


def test_real_templates_render_as_without_limits(shared: Path) -> None:
    conversations: list[dict[str, Any]] = [
        {"messages": MESSAGES, "tools": [TOOL]},
        {"messages": [MESSAGES[0], MESSAGES[1], MESSAGES[4], MESSAGES[5]]},
        {"messages": [MESSAGES[1]]},
    ]
    compared = 0
    for path in sorted((shared / "data" / "templates").glob("*.jinja")):
        source = path.read_bytes().decode()
        if "{% generation" in source or "{%- generation" in source:
            continue
        expected = unlimited().from_string(source)
        template = compile_template(source)
        for conversation in conversations:
            variables = {**conversation, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"}
            text = outcome(lambda: expected.render(variables))  # noqa: B023
            assert outcome(lambda: template.render(variables, NOW)) == text, path.name  # noqa: B023
            compared += 1
    assert compared > 300
