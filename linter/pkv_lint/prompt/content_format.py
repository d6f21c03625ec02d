"""Whether a chat template wants message content as a string or as a list of parts.

vLLM decides by the template's syntax tree (`renderers/hf.py:_detect_content_format`): a template that loops over the
content of a message wants parts ("openai"), every other one gets a string.
"""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import nodes

from pkv_lint.prompt.messages import ContentFormat


def content_format(tree: nodes.Template) -> ContentFormat:
    """The format for a parsed template."""
    try:
        return "openai" if loops_over_content(tree) else "string"
    except UnnamedTarget:
        # vLLM asserts that a loop or assignment it meets has one name as its target, and falls back on failure.
        return "string"


class UnnamedTarget(Exception):
    """A loop or assignment that unpacks into several names."""


def name_of(target: nodes.Node) -> str:
    if not isinstance(target, nodes.Name):
        raise UnnamedTarget
    return target.name


def loops_over_content(tree: nodes.Template) -> bool:
    messages = list(message_names(tree))
    parameters: dict[int, set[str]] = {}
    in_macros: set[int] = set()
    for macro in tree.find_all(nodes.Macro):
        taking = set(content_parameters(tree, macro, messages))
        for loop in macro.find_all(nodes.For):
            in_macros.add(id(loop))
            if taking:
                parameters[id(loop)] = taking
    for loop in tree.find_all(nodes.For):
        over = loop.iter
        found = any(refers_to(over, name, "content") for name in messages) or (
            isinstance(over, nodes.Name)
            and (over.name in parameters.get(id(loop), ()) or (id(loop) not in in_macros and over.name == "content"))
        )
        if found:
            name_of(loop.target)
            return True
    return False


def message_names(tree: nodes.Template) -> Iterator[str]:
    """Names that a loop over `messages`, or over a variable set from it, gives to one message."""
    lists = list(aliases(tree, "messages"))
    for loop in tree.find_all(nodes.For):
        if any(refers_to(loop.iter, name) for name in lists):
            yield name_of(loop.target)


def aliases(tree: nodes.Template, name: str) -> Iterator[str]:
    """`name` and the variables that are set from it or from a part of it, breadth first."""
    yield name
    waiting = [name]
    seen = {name}
    for known in waiting:
        for assignment in tree.find_all(nodes.Assign):
            if refers_to(assignment.node, known):
                target = name_of(assignment.target)
                yield target
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)


def content_parameters(tree: nodes.Template, macro: nodes.Macro, messages: list[str]) -> Iterator[str]:
    """Parameters of a macro that some call fills with the content of a message."""
    names = [argument.name for argument in macro.args]
    for call in tree.find_all(nodes.Call):
        if not (isinstance(call.node, nodes.Name) and call.node.name == macro.name):
            continue
        for name, argument in zip(names, call.args, strict=False):
            if any(refers_to(argument, message, "content") for message in messages):
                yield name
        for keyword in call.kwargs:
            if keyword.key in names and any(refers_to(keyword.value, message, "content") for message in messages):
                yield keyword.key


def refers_to(node: nodes.Node | None, name: str, attribute: str | None = None) -> bool:
    """Whether the expression is the variable (or its attribute), possibly filtered, tested or sliced."""
    while True:
        if isinstance(node, (nodes.Filter, nodes.Test)) or (
            isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        ):
            node = node.node
            continue
        if attribute is None:
            return is_variable(node, name)
        if isinstance(node, nodes.Getitem):
            return is_variable(node.node, name) and isinstance(node.arg, nodes.Const) and node.arg.value == attribute
        return isinstance(node, nodes.Getattr) and is_variable(node.node, name) and node.attr == attribute


def is_variable(node: nodes.Node | None, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name
