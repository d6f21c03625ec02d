"""Chat templates that mean harm are stopped. As a script: each in a process of its own with the usual limits, with the
time that it takes and the memory that it needs at most.

    python tests/prompt/test_hostile_templates.py [NAME...]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.jinja.environment import Template
from pkv_lint.prompt.jinja.limits import Limits

NOW = datetime(2026, 7, 1)
REQUEST = {"messages": [{"role": "user", "content": "Hi"}]}
MEGABYTE = 1_000_000

SET = "{% set ns = namespace(x='x', l=['a'], t=(1,), n=9, d={}) %}"
HUGE = SET + "{% for i in range(24) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"  # 16 million characters
LONG = SET + "{% for i in range(20) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"  # one million
LIST = SET + "{% for i in range(20) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"  # a million items
NESTED = SET + "{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"  # 2 ** 60 items
DEEP = SET + "{% for i in range(2) %}{% for j in range(99999) %}{% set ns.t = (ns.t,) %}{% endfor %}{% endfor %}"
NINE = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
END = "{% endfor %}" * 3


def often(statement: str) -> str:
    return "{% for i in range(99999) %}" + statement * 200 + "{% endfor %}"


HOSTILE = {
    # endless and exponential
    "nested ranges": f"{NINE}{END}",
    "nested ranges that print": NINE + "x" + END,
    "nested ranges with a filter": "{% for a in range(99999) %}{% for b in range(99999) if b is even and b is odd %}x"
    "{% endfor %}{% endfor %}",
    "macro that calls itself": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(1) }}",
    "macro that calls itself twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "macro that doubles": "{% macro f(n) %}{% if n %}{{ f(n - 1) * 2 }}{% else %}xx{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "macros in a chain": "{% macro m0() %}xxxxxxxxxx{% endmacro %}"
    + "".join(f"{{% macro m{i}() %}}" + f"{{{{ m{i - 1}() }}}}" * 2 + "{% endmacro %}" for i in range(1, 40))
    + "{{ m39() }}",
    "caller that calls itself": "{% macro f() %}{{ caller() }}{{ caller() }}{% endmacro %}"
    + "{% call f() %}" * 25
    + "x"
    + "{% endcall %}" * 25,
    "blocks in a chain": "{% block b0 %}xxxxxxxxxx{% endblock %}"
    + "".join(
        f"{{% block b{i} %}}{{{{ self.b{i - 1}() }}}}{{{{ self.b{i - 1}() }}}}{{% endblock %}}" for i in range(1, 40)
    ),
    "block that calls itself": "{% block b %}{{ self.b() }}{% endblock %}",
    "recursive loop": "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    "recursive loop that forks": SET + "{% for i in range(50) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
    "{% for x in ns.l recursive %}{% if x is not string %}{{ loop(x) }}{% endif %}{% endfor %}",
    "loop over a loop": "{% for x in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
    "maps of maps": "{% for x in range(99999) %}"
    "{{ range(99999) | map('abs') | map('abs') | select | list | length }}{% endfor %}",
    "rejects everything": HUGE + "{{ ns.x | reject | reject | list }}",
    "steps in one turn": HUGE + often("{% set y = ns.x.upper() %}"),
    "slices in one turn": HUGE + often("{% set y = ns.x[1:] %}"),
    "comparisons in one turn": HUGE + "{% set y = ns.x + '' %}" + often("{% set z = ns.x == y %}"),
    "searches in one turn": HUGE + often("{% set z = 'y' in ns.x %}"),
    "sets in one turn": HUGE + often("{% set z %}{{ ns.x }}{{ ns.x[1:] }}{% endset %}"),
    # memory
    "string that doubles": SET + "{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "string that doubles by tilde": SET + "{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "string that doubles by set": SET
    + "{% for i in range(99) %}{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}",
    "string that doubles by join": SET + "{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}",
    "string that doubles by a method": SET
    + "{% for i in range(99) %}{% set ns.x = ''.join([ns.x, ns.x]) %}{% endfor %}",
    "string that doubles by replace": SET
    + "{% for i in range(99) %}{% set ns.x = ns.x.replace('x', 'xx') %}{% endfor %}",
    "string that doubles by format": SET + "{% for i in range(99) %}{% set ns.x = '{0}{0}'.format(ns.x) %}{% endfor %}",
    "string that doubles by percent": SET
    + "{% for i in range(99) %}{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}",
    "strings that stay": SET + "{% for i in range(9999) %}{% set ns.l = ns.l + ['x' * 999999] %}{% endfor %}",
    "small strings that stay": SET
    + "{% for i in range(99999) %}{% for j in range(99) %}{% set ns.l = [ns.l, 'x' * 999] %}"
    "{% endfor %}{% endfor %}",
    "lists that stay": SET
    + "{% for i in range(99999) %}{% for j in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{% endfor %}",
    "strings in one list": HUGE + "{% set l = [" + "ns.x + 'x'," * 5000 + "] %}",
    "wide characters": SET.replace("'x'", "'\U0001f600'", 1)
    + "{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "list that doubles": SET + "{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
    "list times": "{{ ([0] * 99999999999) | length }}",
    "list of lists": "{{ range(99999) | map('string') | map('list') | map('batch', 99999, 'x') | map('list')"
    " | list | length }}",
    "much printed": HUGE + "{% for i in range(99) %}{{ ns.x }}{% endfor %}",
    "pieces": LONG + "{{ ns.x | list | length }}{{ ns.x.split('x') | length }}" * 99,
    "split of much": HUGE + "{{ ns.x.split('x') | length }}",
    "list of much": HUGE + "{{ ns.x | list | length }}",
    # numbers
    "power": "{{ (10**9)**(10**6) }}",
    "power of powers": "{{ 9 ** (9 ** (9 ** 9)) }}",
    "products": SET + "{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}{{ ns.n }}",
    "text of a number": "{{ 10**19000 }}",
    "bytes of a number": "{{ (1).to_bytes(9999999999, 'big') | length }}",
    "round": "{{ 5 | round(-999999999) }}",
    "round of text": "{{ 'xxxxxxxxxx' | round(9, 'floor') }}",
    "number of many digits": LONG + "{{ ns.x.replace('x', 'f') | int(0, 16) % 7 }}",
    # padding
    "multiplication": "{{ 'x' * 9999999999 }}",
    "multiplied padding": "{{ ('x' * 9999999) * 9999999 }}",
    "center": "{{ 'x'.center(9999999999) }}",
    "center filter": "{{ 'x' | center(9999999999) }}",
    "ljust": "{{ 'x'.ljust(9999999999) }}",
    "zfill": "{{ 'x'.zfill(9999999999) }}",
    "expandtabs": "{{ ('\\t' * 999).expandtabs(99999999) }}",
    "percent width": "{{ '%9999999999d' % 1 }}",
    "percent star": "{{ '%*d' % (9999999999, 1) }}",
    "percent precision": "{{ '%.999999999f' % 1.5 }}",
    "percent of a mapping": "{{ '%((x))9999999999d' % {'(x)': 1} }}",
    "format filter": "{{ '%9999999999s' | format('x') }}",
    "format width": "{{ '{:9999999999}'.format(1) }}",
    "format width argument": "{{ '{:{}}'.format(1, 9999999999) }}",
    "format map": "{{ '{a:9999999999}'.format_map({'a': 1}) }}",
    "divisible by": "{{ '%9999999999d' is divisibleby(2) }}",
    "even": "{{ '%9999999999d' is even }}",
    "indent": "{{ 'x\\ny' | indent(9999999999) }}",
    "indent of lines": LONG + "{{ ns.x.replace('x', '\\n') | indent(9999, blank=true) }}",
    "tojson indent": "{{ [[1]] | tojson(indent=9999999999) }}",
    "wordwrap": LONG + "{{ ns.x | wordwrap(1, true, 'x' * 9999) }}",
    "batch": "{{ [1] | batch(9999999999, 'x') | list | length }}",
    "slice": "{{ 5 in ([1] | slice(9999999999)) }}",
    "translate": LONG + "{{ ns.x.translate({120: ns.x}) }}",
    "json separators": LONG + "{{ range(9999) | list | tojson(separators=(ns.x, ns.x)) }}",
    "replace by name": LONG + "{{ ns.x | replace(old='x', new=ns.x) }}",
    "bytes": SET + "{% set ns.x = 'x'.encode() %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "joined bytes": LONG + "{% set b = ns.x.encode() %}{{ b.join([b] * 99999) | length }}",
    "arguments": LIST + "{% macro f() %}{{ varargs | length }}{% endmacro %}{% for i in range(999) %}"
    "{% set x = f(*ns.l) %}{% endfor %}",
    "counts in one turn": HUGE + often("{% set y = ns.x.count('xy') %}"),
    "join with much": LONG + "{{ ns.x.join(ns.x) }}",
    "join filter with much": LONG + "{{ ns.x | join(ns.x) }}",
    "lipsum": "{{ lipsum(999999999) }}",
    "lipsum words": "{{ lipsum(1, false, 1, 9999999999) }}",
    "range": "{{ range(9999999999) | list }}",
    "strftime": "{{ strftime_now('%999999999d' * 99999) }}",
    "escape": LONG + "{{ (ns.x * 20) | replace('x', '<') | e | e | e | e }}",
    "markup": LONG + "{{ ('<'|safe).join([ns.x.replace('x', '<') * 20, 'y']) }}" * 20,
    "message": LONG + "{{ raise_exception(ns.x) }}",
    "undefined message": LONG + "{{ messages[ns.x] + 1 }}",
    # small in memory, endless on paper
    "print nested": NESTED + "{{ ns.l }}",
    "string nested": NESTED + "{{ ns.l | string }}",
    "tilde nested": NESTED + "{{ 'x' ~ ns.l }}",
    "json nested": NESTED + "{{ ns.l | tojson }}",
    "indented json nested": NESTED + "{{ ns.l | tojson(indent=1) }}",
    "json of mentions": LONG + "{{ ([ns.x] * 9999) | tojson }}",
    "names of mentions": LONG + "{{ ([{ns.x: 1}] * 9999) | tojson }}",
    "pprint nested": NESTED + "{{ ns.l | pprint }}",
    "percent nested": NESTED + "{{ '%s' % [ns.l] }}",
    "format nested": NESTED + "{{ '{}'.format(ns.l) }}",
    "format nested repr": NESTED + "{{ '{!r}'.format(ns.l) }}",
    "join nested": NESTED + "{{ [ns.l] | join }}",
    "trim nested": NESTED + "{{ ns.l | trim }}",
    "compare nested": NESTED + "{% set a = ns.l %}{% set ns.l = ['a'] %}" + NESTED[len(SET) :] + "{{ a == ns.l }}",
    "test nested": NESTED + "{% set a = ns.l %}{% set ns.l = ['a'] %}" + NESTED[len(SET) :] + "{{ a is eq(ns.l) }}",
    "find nested": NESTED + "{% set a = ns.l %}{% set ns.l = ['a'] %}" + NESTED[len(SET) :] + "{{ a in [ns.l] }}",
    "index nested": NESTED + "{{ [1].index(ns.l) }}",
    "sort nested": NESTED + "{% set a = ns.l %}{% set ns.l = ['a'] %}" + NESTED[len(SET) :] + "{{ [a, ns.l] | sort }}",
    "changed nested": NESTED + "{% for x in [1, 2] %}{{ loop.changed(ns.l) }}{% set ns.l = ['a'] %}{% endfor %}",
    "namespace nested": NESTED + "{{ ns }}",
    "items nested": NESTED + "{{ {'a': ns.l}.items() }}",
    "views nested": NESTED + "{{ {'a': ns.l}.items().mapping }}",
    "exception nested": NESTED + "{{ raise_exception(ns.l) }}",
    "undefined nested": NESTED + "{{ messages[0][ns.l] + 1 }}",
    "hash nested": NESTED.replace("[ns.l, ns.l]", "(ns.l, ns.l)").replace("['a']", "('a',)")
    + "{{ {ns.l: 1} | length }}",
    "unique nested": NESTED.replace("[ns.l, ns.l]", "(ns.l, ns.l)").replace("['a']", "('a',)")
    + "{{ [ns.l] | unique | list }}",
    "get nested": NESTED.replace("[ns.l, ns.l]", "(ns.l, ns.l)").replace("['a']", "('a',)") + "{{ {}.get(ns.l) }}",
    "key deep": DEEP + "{{ {ns.t: 1} | length }}",
    "item deep": DEEP + "{{ messages[0][ns.t] }}",
    "found deep": DEEP + "{{ ns.t in {} }}",
    "found deep in a chain": DEEP + "{{ ns.t in {} in [1] }}",
    "item deep of a constant": DEEP + "{{ {1: 2}[ns.t] }}{{ {1: 2} | attr('get')(ns.t) }}",
    "test deep": DEEP + "{{ ns.t is in({}) }}",
    "method deep": DEEP + "{{ {}.fromkeys([ns.t]) }}",
    "view deep": DEEP + "{{ {'a': ns.t}.items() - [] }}{{ {'a': ns.t}.items() | unique | list }}",
    "keyword deep": DEEP + "{{ dict([(ns.t, 1)]) }}",
    "pairs deep": DEEP + "{{ namespace([(ns.t, 1)]) }}",
    "items deep": DEEP.replace("(ns.t,)", "{'a': ns.t}.items() | first") + "{{ {ns.t: 1} | length }}",
    "sum of lists": LIST + "{{ ns.l | batch(1) | list | sum(start=[]) | length }}",
    # slow in C
    "rfind": LONG + "{{ ns.x.rfind('y' ~ ns.x[:500000]) }}" * 20,
    "strip": LONG + "{{ ns.x.strip('y' * 999999 ~ 'x') }}" * 20,
    "list of equals": LONG + "{% set y = ns.x[1:] ~ 'y' %}{{ ([ns.x] * 99999).count(y) }}",
    "tags": LONG + "{{ ns.x.replace('x', '<!---->') | striptags }}",
    "urls": LONG + "{{ ns.x.replace('x', '(') ~ 'a' ~ ns.x.replace('x', ')') | urlize }}",
    "punycode": LONG + "{{ ns.x.replace('x', 'é').encode('punycode') | length }}",
    # escapes
    "class": "{{ ''.__class__.__mro__ + 1 }}",
    "subclasses": "{{ ''.__class__.__base__.__subclasses__() }}",
    "globals": "{{ raise_exception.__globals__.os }}",
    "function globals": "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "attr filter": "{{ ''|attr('__class__')|attr('__mro__')|list + [1] + 1 }}",
    "map attribute": "{{ ['']|map(attribute='__class__.__mro__')|first + 1 }}",
    "format attributes": "{{ '{0.__class__.__mro__}'.format('') }}",
    "format method by map": "{{ '{a.__class__.__mro__}'.format_map({'a': 1}) }}",
    "frame of a generator": "{{ (['a']|map('upper')).gi_frame.f_globals }}",
    "code": "{{ namespace.__init__.__code__.co_consts + 1 }}",
    "environment of a method": "{{ ''.format.environment.globals + 1 }}{{ ''.format._environment.globals + 1 }}",
    "class of a method": "{{ ''.format.__class__ + 1 }}",
    "change the request": "{{ messages.append(1) }}",
    "change a message": "{{ messages[0].update(role='x') }}",
    # files
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import '/etc/passwd' as x %}",
    "from import": "{% from '/etc/passwd' import x %}",
    "extends": "{% extends '/etc/passwd' %}",
    # to be refused before anything is rendered
    "very long": "x" * 999_999,
    "many parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "many lists": "{{ " + "[" * 3000 + "]" * 3000 + " }}",
    "many sums": "{{ " + "1+" * 20_000 + "1 }}",
    "many nots": "{{ " + "not " * 10_000 + "1 }}",
    "many attributes": "{{ a" + ".a" * 20_000 + " }}",
    "many filters": "{{ a" + "|e" * 20_000 + " }}",
    "many conditions": "{% if a %}" * 3000 + "{% endif %}" * 3000,
    "many branches": "{% if a %}" + "{% elif a %}" * 6000 + "{% endif %}",
    "many loops": "{% for a in b %}" * 300 + "{% endfor %}" * 300,
    "many comments": "{#" * 39_000,
    "folded constants": "{{ 'x' | center(9999999999) | length }}",
    "folded power": "{{ 9 ** (9 ** 9) }}",
    "folded products": "{{ 'x' * 9999999999 }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_stopped(name: str) -> None:
    before = peak_memory()
    start = time.thread_time()
    with pytest.raises(RenderError) as stopped:
        Template(HOSTILE[name], Limits(seconds=0.5)).render(REQUEST, NOW)
    assert time.thread_time() - start < 5
    assert peak_memory() - before < 1000 * MEGABYTE
    assert stopped.value.from_template
    assert stopped.value.path is None
    assert 0 < len(str(stopped.value)) < 5000
    assert "\n" not in str(stopped.value)


def test_the_request_is_not_changed() -> None:
    request = {"messages": [{"role": "user", "content": "Hi"}]}
    for name in ("change the request", "change a message"):
        with pytest.raises(RenderError, match="is unsafe"):
            Template(HOSTILE[name]).render(request, NOW)
    assert request == REQUEST


def peak_memory() -> int:
    """Bytes that the process had in use at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def show(name: str) -> None:
    before = peak_memory()
    start = time.thread_time()
    try:
        outcome = f"RENDERED {Template(HOSTILE[name]).render(REQUEST, NOW)[:60]!r}"
    except RenderError as error:
        outcome = str(error)
    grown = (peak_memory() - before) // MEGABYTE
    print(f"{name:32} {time.thread_time() - start:5.2f} s {grown:5} MB  {outcome[:120]}", flush=True)


def main() -> None:
    here = Path(__file__)
    for name in sys.argv[1:] or HOSTILE:
        code = f"import {here.stem}; {here.stem}.show({name!r})"
        child = subprocess.run([sys.executable, "-c", code], cwd=here.parent, timeout=60)
        if child.returncode:
            print(f"{name:32} DIED with {child.returncode}")


if __name__ == "__main__":
    main()
