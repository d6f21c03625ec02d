"""Traced strings are strings, and what is said of where their characters came from is true."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkv_lint.prompt.jinja.environment import compile_template
from pkv_lint.prompt.origin import COMPUTED, Origin, Source
from pkv_lint.prompt.traced import join, origins, parse_traced_json, retrace, trace, trace_value
from pkv_lint.prompt.traced.printing import json_of, repr_of, text_of
from pkv_lint.prompt.traced.strings import Traced, concat, plain
from pkv_lint.prompt.traced.values import untrace

NOW = datetime(2026, 7, 1, 9, 30)
LEFT = Source("value", "left")
RIGHT = Source("value", "right")

# Characters that strings treat in some special way: white space, case, quotes, what repr, JSON and HTML escape.
texts = st.text(alphabet="abS \t\n\r{}%'\"\\<&é\xa0ß\u2028\x00\x1fİς\U0001f600", max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


def pieced(parts: list[str]) -> Traced:
    return concat(trace(part, LEFT if i % 2 else RIGHT, i) for i, part in enumerate(parts))


def runs(text: str) -> list[tuple[str, str, str, int]]:
    """Text, kind, place and offset of each run."""
    return [
        (plain(text)[origin.start : origin.end], origin.kind, origin.source.where, origin.offset)
        for origin in origins(text)
    ]


METHODS: dict[str, list[tuple[Any, ...]]] = {
    **{name: [()] for name in ("lower", "upper", "title", "capitalize", "casefold", "swapcase")},
    **{name: [(), ("a ",), ("b\n",)] for name in ("strip", "lstrip", "rstrip")},
    **{name: [(), ("a",), (" ", 1), (None, 1)] for name in ("split", "rsplit")},
    **{name: [("a",), ("b",)] for name in ("partition", "rpartition", "removeprefix", "removesuffix")},
    **{name: [(9,), (10, "*"), (11, "-")] for name in ("center", "ljust", "rjust")},
    "splitlines": [(), (True,)],
    "replace": [("a", "bb"), ("a", "", 1), ("", "x"), ("", "x", 2)],
    "zfill": [(7,)],
    "expandtabs": [(3,)],
    "join": [(["x", "", "y"],)],
    "translate": [({97: "zz", 98: None},)],
    "__add__": [("q",)],
    "__mul__": [(3,), (0,), (-1,)],
    "__getitem__": [(slice(None, None, -1),), (slice(2, -1),), (slice(None, None, 2),)],
    "__format__": [("10",), ("^7.3",), (">4",)],
}


def check(found: Any, expected: Any) -> None:
    """`found` is `expected` with origins that cover it."""
    if isinstance(expected, str):
        assert plain(found) == expected
        covered = 0
        for origin in origins(found):
            assert origin.start == covered < origin.end
            covered = origin.end
        assert covered == len(expected)
    else:
        assert type(found) is type(expected)
        assert len(found) == len(expected)
        for part, other in zip(found, expected, strict=True):
            check(part, other)


@settings(max_examples=300, deadline=None)
@given(st.lists(texts, max_size=4))
def test_methods_of_traced_strings_give_what_those_of_strings_give(parts: list[str]) -> None:
    text = "".join(parts)
    followed = pieced(parts)
    for name, calls in METHODS.items():
        for args in calls:
            check(getattr(followed, name)(*args), getattr(text, name)(*args))
    check("q" + followed, "q" + text)
    check(list(followed), list(text))
    assert followed == text
    assert hash(followed) == hash(text)
    assert {text: 1}[followed] == 1
    for kept in (copy.deepcopy(followed), copy.copy(followed), pickle.loads(pickle.dumps(followed)), str(followed)):
        assert origins(kept) == origins(followed)


@settings(max_examples=200, deadline=None)
@given(texts, st.data())
def test_what_is_cut_out_keeps_its_offsets(text: str, data: st.DataObject) -> None:
    followed = trace(text, LEFT, 100)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    assert origins(followed[start:end]) == ((Origin(0, end - start, LEFT, 100 + start),) if start < end else ())
    assert origins(followed[:start] + followed[start:]) == origins(followed)
    assert origins(followed.replace("a", "")) == origins(concat(char for char in followed if char != "a"))


@settings(max_examples=300, deadline=None)
@given(
    values,
    st.sampled_from([{}, {"indent": 2}, {"indent": 0}, {"indent": "\t"}, {"ensure_ascii": True}, {"sort_keys": True}])
    | st.just({"separators": (",", ":")}),
)
def test_values_print_as_python_and_json_print_them(value: Any, options: dict[str, Any]) -> None:
    followed = trace_value(value, "p")
    assert followed == value
    assert type(untrace(followed)) is type(value)
    check(json_of(followed, **options), json.dumps(value, **{"ensure_ascii": False, **options}))
    check(json_of(value, **options), json.dumps(value, **{"ensure_ascii": False, **options}))
    check(text_of(followed), str(value))
    check(repr_of(followed), repr(value))
    assert json.dumps(followed) == json.dumps(value)
    if isinstance(value, dict | list):
        assert all(origin.source != COMPUTED for origin in origins(json_of(followed, **options)))


@settings(max_examples=300, deadline=None)
@given(values, st.booleans())
def test_parsed_arguments_are_the_value_of_the_text(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=ascii_only)
    parsed = parse_traced_json(trace(text, Source("value", "p")))
    assert parsed == value
    check(json_of(parsed), json.dumps(value, ensure_ascii=False))


@pytest.mark.parametrize("text", ["", " ", "{'a': 1}", '{"a": 1} x', '{"a": "\n"}', "[1,]", '"\\ud800"', "9" * 5000])
def test_arguments_that_are_not_json_fail_as_in_json(text: str) -> None:
    try:
        expected: Any = json.loads(text)
    except ValueError as error:
        with pytest.raises(type(error), match="^" + str(error).replace("(", r"\(").replace(")", r"\)")[:40]):
            parse_traced_json(trace(text, LEFT))
    else:
        assert parse_traced_json(trace(text, LEFT)) == expected


def test_parsed_arguments_point_into_the_text() -> None:
    text = '{"cit\\u0079": ["Zü\\nrich", 1.50, -3, true], "cit\\u0079": "B", "n": NaN}'
    parsed = parse_traced_json(trace(text, Source("value", "args")))
    assert runs(parsed["city"]) == [("B", "value", "args", text.index('"B"') + 1)]
    city, number = parsed
    assert runs(city) == [("cit", "value", "args", 2), ("y", "value", "args", 5)]
    assert runs(str(parsed[number])) == [("nan", "value", "args", text.index("NaN"))]
    items = parse_traced_json(trace('["Z\\n", 1.50, true]', Source("value", "args")))
    assert runs(json_of(items)) == [
        ("[", "syntax", "args", 0),
        ('"', "syntax", "args", 2),
        ("Z", "value", "args", 2),
        ("\\n", "value", "args", 3),
        ('"', "syntax", "args", 2),
        (", ", "syntax", "args", 0),
        ("1.5", "value", "args", 8),
        (", ", "syntax", "args", 0),
        ("true", "value", "args", 14),
        ("]", "syntax", "args", 0),
    ]


def test_paths_are_those_of_the_request() -> None:
    request = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "odd name": {"": None}}
    followed = trace_value(request, "")
    assert runs(followed["messages"][0]["content"][0]["text"]) == [("Hi", "value", "messages[0].content[0].text", 0)]
    assert runs(next(iter(followed["messages"][0]))) == [("role", "key", "messages[0].role", 0)]
    assert runs(next(iter(followed["odd name"]))) == []
    assert (
        runs(json_of(followed["odd name"]))
        == [
            ("{", "syntax", '["odd name"]', 0),
            ('"": ', "syntax", '["odd name"]', 0),
            ("null", "value", '["odd name"][""]', 0),
            ("}", "syntax", '["odd name"]', 0),
        ]
        or "".join(run[0] for run in runs(json_of(followed["odd name"]))) == '{"": null}'
    )


def test_what_the_server_adds_was_written_for_what_it_is_added_to() -> None:
    request = trace_value({"tools": [{"function": {"name": "f"}}], "messages": [{"content": "Hi"}]}, "")
    tool = {"type": "function", "function": {"name": request["tools"][0]["function"]["name"], "description": None}}
    message = {"role": "user", "content": [{"type": "text", "text": request["messages"][0]["content"]}]}
    completed = trace_value({"tools": [tool], "messages": [message]}, "elsewhere")
    assert {run[2] for run in runs(json_of(completed["tools"][0]["function"]))} <= {
        "tools[0].function",
        "tools[0].function.name",
    }
    assert runs(completed["messages"][0]["role"]) == [("user", "syntax", "messages[0]", 0)]
    part = completed["messages"][0]["content"][0]
    assert runs(part["type"]) == [("text", "syntax", "messages[0].content", 0)]
    assert runs(part["text"]) == [("Hi", "value", "messages[0].content", 0)]
    assert all(origin.source != COMPUTED for origin in origins(json_of(completed)))


def test_joining_writes_separators_for_the_value_around_the_parts() -> None:
    content = trace_value([{"text": "a"}, {"text": "b"}], "messages[3].content")
    assert runs(join("\n", [part["text"] for part in content])) == [
        ("a", "value", "messages[3].content[0].text", 0),
        ("\n", "syntax", "messages[3].content", 0),
        ("b", "value", "messages[3].content[1].text", 0),
    ]
    assert type(join("\n", ["a", "b"])) is str


def test_a_reshaped_request_finds_its_origins_again() -> None:
    original = {"b": 1, "a": ["x", {"c": "y", "d": None}], "reasoning_content": "z", "gone": 2}
    shaped = {"a": ["x", {"d": None, "c": "y", "new": "n"}], "b": True, "reasoning": "z"}
    found = retrace(shaped, trace_value(original, ""))
    assert found == shaped
    assert list(found) == list(shaped)
    assert found["b"] is True
    assert runs(found["a"][1]["c"]) == [("y", "value", "a[1].c", 0)]
    assert runs(found["reasoning"]) == [("z", "value", "reasoning_content", 0)]
    assert type(found["a"][1]["new"]) is str


REQUEST: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "  Be terse.\nBe <kind>.\n"},
        {"role": "user", "content": "What is \"it\" & 'that'? \\ ok"},
        {
            "role": "assistant",
            "content": "<think>hm</think>Let me see",
            "tool_calls": [
                {"function": {"name": "look", "arguments": '{"city": "Bonn\\u00e9", "days": 2, "all": true}'}}
            ],
        },
    ],
    "tools": [
        {"function": {"name": "look", "description": None, "parameters": {"days": {"default": 3.5, "enum": ["a"]}}}}
    ],
}

C = "{% set c = messages[0].content %}"
TEMPLATES = {
    "concatenation": "{% for m in messages %}{{ '<|' + m.role + '|>' + m['content'] ~ '\n' }}{% endfor %}",
    "slices": C + "{{ c[2:9] }}|{{ c[::-1] }}|{{ c.split('\n')[0][2:] }}|{{ c.partition('terse')[2] }}",
    "methods": C + "{{ c.strip() }}|{{ c.upper() }}|{{ c.replace('Be', 'Stay') }}|{{ c.splitlines() | join('/') }}",
    "filters": C + "{{ c | trim | upper }}|{{ c | title }}|{{ c | replace('\n', '/') }}|{{ c | list | join('-') }}|"
    "{{ c | first }}{{ c | last }}|{{ c | capitalize }}|{{ c | reverse }}|{{ c | truncate(9) }}|{{ c | e }}",
    "layout": C
    + "{{ c }}{{ messages | map(attribute='content') | join(', ') }}{{ c | indent(1) }}{{ c | center(26) }}",
    "json": "{{ tools[0] | tojson }}{{ tools | tojson(indent=2) }}{{ messages[1] | tojson(ensure_ascii=true) }}",
    "repr": "{{ tools }}{{ messages[1] }}{{ [messages[1].content] | string }}{{ tools | trim }}",
    "arguments": "{% for c in messages[2].tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
    "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }};{% endfor %}{% endfor %}",
    "markup": "{{ ('<b>' + messages[0].content) | safe + messages[1].content + '<' }}"
    "{{ (messages[1].content | safe)[2:] + '&' }}",
    "format": "{{ '%s: %-30s|' % (messages[0].role, messages[1].content) }}"
    "{{ '%s/%s' | format(messages[0].role, tools) }}{{ '{0}{x!r:>9}'.format(messages[0].role, x=messages[1].role) }}",
    "macros": "{% macro show(m) %}[{{ m.content }}{{ caller() }}]{% endmacro %}"
    "{% call show(messages[0]) %}{{ messages[1].content }}{% endcall %}",
    "blocks": "{% set all %}{{ messages[1].content }}{{ messages[2].content }}{% endset %}{{ all[5:] }}"
    "{% filter upper %}{{ all }}{% endfilter %}{% block b %}{{ messages[0].content }}{% endblock %}{{ self.b() }}",
    "namespace": "{% set ns = namespace(text='') %}"
    "{% for m in messages %}{% set ns.text = ns.text ~ m.content %}{% endfor %}{{ ns.text }}",
    "conditions": "{% for m in messages %}{{ m.content if m.role == 'user' else m.role }}{{ m.x or m.content }}"
    "{% endfor %}",
}


def traced_variables(request: Any) -> dict[str, Any]:
    """As the normalisation does it: arguments are parsed."""
    variables: dict[str, Any] = trace_value(request, "")
    for message in variables["messages"]:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = parse_traced_json(call["function"]["arguments"])
    return variables


def places_of_strings(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, str):
        return [path]
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, child in children for place in places_of_strings(child, (*path, key))]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_changed_letter_changes_what_is_said_to_come_from_it(name: str) -> None:
    template = compile_template(TEMPLATES[name])
    text = template.render(untrace(traced_variables(REQUEST)), NOW)
    followed = template.render_traced(traced_variables(REQUEST), NOW)
    assert followed == text
    said: dict[tuple[str, int], set[int]] = {}
    for origin in origins(followed):
        if origin.kind == "value":
            for i in range(origin.end - origin.start):
                offset = origin.offset + i if origin.linear else origin.offset
                said.setdefault((origin.source.where, offset), set()).add(origin.start + i)
    computed = sum(origin.end - origin.start for origin in origins(followed) if origin.kind == "computed")
    assert computed <= 0.06 * len(text)  # padding, the names of macros, a boolean that stands by itself
    decided = 0
    for place in places_of_strings(REQUEST):
        if place[-1] == "role":
            continue  # steers the templates
        request = copy.deepcopy(REQUEST)
        parent: Any = request
        for step in place[:-1]:
            parent = parent[step]
        original = parent[place[-1]]
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).lstrip(".")
        for i, char in enumerate(original):
            if not char.isascii() or not char.isalpha():
                continue
            parent[place[-1]] = original[:i] + ("q" if char != "q" else "z") + original[i + 1 :]
            try:
                other = template.render(untrace(traced_variables(request)), NOW)
            except ValueError:  # no longer JSON
                continue
            if len(other) == len(text):
                changed = {j for j, (before, after) in enumerate(zip(text, other, strict=True)) if before != after}
                assert changed == said.get((path, i), set()), (path, i, char)
                decided += 1
    assert decided > 5


def test_kinds_of_origins() -> None:
    source = "{{ bos_token }}A\n{{ strftime_now('%Y') }}{{ loops | length }}{{ 'x' }}{{ tools[0] | tojson }}"
    variables = {**trace_value({"tools": [{"a": True}], "loops": [1, 2]}, ""), "bos_token": "<s>"}
    assert runs(compile_template(source).render_traced(variables, NOW)) == [
        ("<s>", "template", "bos_token", 0),
        ("A\n", "template", "line 1", 0),
        ("2026", "clock", "strftime_now", 0),
        ("2", "computed", "", 0),
        ("x", "template", "line 2", 0),
        ("{", "syntax", "tools[0]", 0),
        ('"', "syntax", "tools[0].a", 0),
        ("a", "key", "tools[0].a", 0),
        ('"', "syntax", "tools[0].a", 0),
        (": ", "syntax", "tools[0]", 0),
        ("true", "value", "tools[0].a", 0),
        ("}", "syntax", "tools[0]", 0),
    ]


def test_what_cannot_be_followed_is_computed() -> None:
    source = "{{ messages[0].content | urlencode }}{{ messages[0].content | length }}"
    followed = compile_template(source).render_traced(trace_value({"messages": [{"content": "a b"}]}, ""), NOW)
    assert plain(followed) == "a%20b3"
    assert runs(followed) == [("a%20b3", "computed", "", 0)]


def test_long_texts_are_traced_in_reasonable_time() -> None:
    content = 'She said "hello" and\nwent\t' * 20_000
    variables = trace_value({"messages": [{"role": "user", "content": content}]}, "")
    template = compile_template("{{ messages | tojson }}{{ messages[0].content.split('\n') | join('\n') }}")
    followed = template.render_traced(variables, NOW)
    assert len(followed) > 1_000_000
    assert {origin.kind for origin in origins(followed)} == {"value", "key", "syntax", "template"}
