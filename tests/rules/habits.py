"""Chat templates that differ in one habit of real ones."""

from __future__ import annotations

HEAD = r"""
{%- macro calls(message) -%}
    {%- for call in message.tool_calls or [] %}
        {{- '\n<tool_call>\n{"name": "' ~ call.function.name ~ '", "arguments": ' ~ call.function.arguments | tojson }}
        {{- (', "id": "' ~ call.id ~ '"' if ids else '') ~ '}\n</tool_call>' }}
    {%- endfor %}
{%- endmacro -%}
{%- macro tooling() -%}
    {%- if tools %}{{ '<|im_start|>tools\n' ~ tools | tojson ~ '<|im_end|>\n' }}{% endif -%}
{%- endmacro -%}
{%- set turn = namespace(last=-1) -%}
{%- for message in messages %}{% if message.role == 'user' %}{% set turn.last = loop.index0 %}{% endif %}{% endfor -%}
"""
CLOSE = "{{ '<|im_end|>\\n' }}"
OPENING = "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}"


def template(
    *,
    head: str = "{{ tooling() }}",
    before_content: str = "",
    content: str = "{{ message.content or '' }}",
    opening: str = OPENING,
    ids: bool = False,
) -> str:
    """A ChatML-like template. `before_content` is printed in front of the text of replies."""
    return "".join(
        (
            "{%- set ids = " + str(ids).lower() + " -%}",
            HEAD,
            head,
            "{%- for message in messages -%}",
            "{{ '<|im_start|>' ~ message.role ~ '\\n' }}",
            "{%- if message.role == 'assistant' -%}" + before_content + "{%- endif -%}",
            "{%- if ids and message.role == 'tool' %}{{ message.tool_call_id ~ ': ' }}{% endif -%}",
            content,
            "{%- if message.role == 'assistant' %}{{ calls(message) }}{% endif -%}",
            CLOSE,
            "{%- endfor -%}",
            opening,
        )
    )


def thinking(when: str = "true") -> str:
    """A template that prints reasoning under a condition."""
    thought = "{{ '<think>\\n' ~ message.reasoning_content ~ '\\n</think>\\n\\n' }}"
    return template(before_content="{%- if message.reasoning_content and (" + when + ") %}" + thought + "{% endif -%}")


PLAIN = template()
"""Prints everything but reasoning and ids."""
PRINTS_IDS = template(ids=True)
KEEPS_REASONING = thinking()
DROPS_REASONING = thinking("loop.index0 > turn.last")
"""Prints reasoning only behind the last user message, as Qwen3 does."""
DROPS_UNLESS_ASKED = thinking("preserve_thinking or loop.index0 > turn.last")
CLEARS_UNLESS_ASKED = thinking("clear_thinking is false or loop.index0 > turn.last")
KEEPS_LAST_ONLY = thinking("loop.index0 >= messages | length - 2")
STRIPS_INLINE = template(
    content="{%- if message.role == 'assistant' and message.content and loop.index0 < turn.last %}"
    "{{ message.content.split('</think>')[-1].lstrip() }}{% else %}{{ message.content or '' }}{% endif -%}"
)
"""Takes reasoning out of the text of replies in front of the last user message, as DeepSeek-R1's template does."""
EMPTY_THOUGHT = "'<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n'"
OPENS_WITH_EMPTY_THOUGHT = template(opening="{%- if add_generation_prompt %}{{ " + EMPTY_THOUGHT + " }}{% endif -%}")
OPENS_A_THOUGHT = KEEPS_REASONING.replace(
    OPENING, "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif -%}"
)
TRIMS = template(content="{{ (message.content or '') | trim }}")
