"""What the template does to a conversation that goes on: is this prompt still the beginning of the next one?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pkv_lint.changes import role
from pkv_lint.probes.trials import Chat, Trials, with_argument
from pkv_lint.prompt.prefix_tree import common_prefix
from pkv_lint.prompt.prompt import Prompt
from pkv_lint.turns import Turn

MESSAGE = re.compile(r"messages\[(\d+)\]")
KEEPS_THOUGHTS = re.compile("(?:keep|preserve|clear|truncate|drop|strip|retain|history).*(?:think|reason|history)")
"""Names that templates give to a switch over earlier thoughts (not `enable_thinking`, which ends all thinking)."""
PLAIN: Mapping[str, Any] = {}
THOUGHTFUL: Mapping[str, Any] = {"reasoning_content": "Let me see."}
CALL_ID = "a1b2c3d4e"
"""Nine letters and digits: some templates take no other."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A prompt that will not be the beginning of the next one.

    `moved`: something in front of the history is printed at its end. `reasoning_dropped`: thoughts are printed no more
    once a user speaks. `generation_prompt`: the opening of the reply is not repeated in front of it. `path` is what
    stood at the break in the chat form of the body, `tokens` how many tokens from there to the end of the prompt will
    not be reused.
    """

    turn: Turn
    nature: Literal["moved", "reasoning_dropped", "generation_prompt"]
    path: str
    tokens: int


def broken_next(trials: Trials, turn: Turn) -> Iterator[Broken]:
    """What breaks when the conversation goes on with a reply and a user message, or with a call of a tool."""
    prompt = trials.own(turn)
    if prompt is None or prompt.text is None or turn.chat.get("continue_final_message"):
        return
    bare = trials.text({**turn.chat, "add_generation_prompt": False}, turn.now)
    if bare is None or not prompt.text.startswith(bare):
        bare = prompt.text
    for chat in (following(turn.chat, PLAIN), called(turn.chat, PLAIN)):
        later = trials.render(chat, turn.now) if chat is not None else None
        if later is not None and later.text is not None:
            found = inside(turn, prompt, bare, later)
            if found is not None:
                yield found
                return
    # However the reply comes back: as text, with thoughts, as a call.
    replies = [make(turn.chat, reply) for make in (following, called) for reply in (PLAIN, THOUGHTFUL)]
    texts = [text for chat in replies if chat is not None and (text := trials.text(chat, turn.now)) is not None]
    if texts and bare != prompt.text and not any(text.startswith(prompt.text) for text in texts):
        shared = max(common_text(prompt.text, text) for text in texts)
        first = next((at for at, (_, end) in enumerate(prompt.token_spans) if end > shared), len(prompt.token_ids))
        path = f"messages[{len(turn.chat['messages'])}]"
        yield Broken(turn, "generation_prompt", path, len(prompt.token_ids) - first)


def reasoning_switch(trials: Trials, turn: Turn) -> tuple[str, bool] | None:
    """The template argument, and its value, with which the thoughts in a request stay in the prompts of later turns."""
    thoughts = [text for message in turn.chat["messages"] if (text := thought(message))]
    for name in sorted(trials.variables(turn)):
        if not KEEPS_THOUGHTS.search(name):
            continue
        for value in (True, False):
            chat = with_argument(turn.chat, name, value)
            opened = following(chat, PLAIN)
            prompt = trials.text({**chat, "add_generation_prompt": False}, turn.now)
            later = trials.text(opened, turn.now) if opened is not None else None
            if prompt and later and later.startswith(prompt) and all(text in later for text in thoughts):
                return name, value
    return None


def thought(message: Any) -> str:
    """What a message says it thought, without the white space around it."""
    text = (message.get("reasoning_content") or message.get("reasoning")) if isinstance(message, dict) else None
    return text.strip() if isinstance(text, str) else ""


def inside(turn: Turn, prompt: Prompt, bare: str, later: Prompt) -> Broken | None:
    """What stands at a break in front of the opening of the reply."""
    assert prompt.text is not None and later.text is not None
    start = common_text(prompt.text, later.text)
    if start >= len(bare):
        return None
    then, now = value_from(prompt, start), value_from(later, start)
    if then is None or then == now:
        return None
    nature, path = told(turn.chat, then, now)
    if nature is None:
        return None
    shared = common_prefix(prompt.token_ids, later.token_ids)
    last = next((at for at, (_, end) in enumerate(prompt.token_spans) if end > len(bare)), len(prompt.token_ids))
    return Broken(turn, nature, path, max(0, last - shared))


def told(
    chat: Chat, then: tuple[str, int], now: tuple[str, int] | None
) -> tuple[Literal["moved", "reasoning_dropped"] | None, str]:
    """What the value at the break says about the template; nothing where other reasons are as likely."""
    path = then[0]
    place = MESSAGE.match(path)
    if place is None:
        root = path.partition(".")[0].partition("[")[0]
        return ("moved", root) if root in ("tools", "documents") else (None, root)
    message = chat["messages"][int(place[1])]
    if role(message) in ("system", "developer"):
        return "moved", path
    if path.endswith((".reasoning", ".reasoning_content")):
        return "reasoning_dropped", path
    if role(message) == "assistant" and now is not None and now[0] == path and now[1] > then[1]:
        # Thoughts in the text itself: the next prompt shows the same message from further behind.
        return "reasoning_dropped", path
    return None, path


def value_from(prompt: Prompt, start: int) -> tuple[str, int] | None:
    """The first value of the request at or behind a character of the prompt: its path, and the place in it."""
    for origin in prompt.origins:
        if origin.kind == "value" and origin.end > start:
            skipped = max(0, start - origin.start) if origin.linear else 0
            return origin.source.where, origin.offset + skipped
    return None


def common_text(one: str, other: str) -> int:
    """How many characters two texts have in common in front."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def gone_on(chat: Chat) -> Chat | None:
    """The conversation after a plain reply and one more user message."""
    return following(chat, PLAIN)


def following(chat: Chat, reply: Mapping[str, Any]) -> Chat | None:
    messages: list[Any] = chat["messages"]
    if role(messages[-1]) not in ("user", "tool"):
        return None
    answer = {"role": "assistant", "content": "Done.", **reply}
    return {**chat, "messages": [*messages, answer, {"role": "user", "content": "Thanks. Go on."}]}


def called(chat: Chat, reply: Mapping[str, Any]) -> Chat | None:
    """The conversation after a call of the first tool and its result."""
    messages, tools = chat["messages"], chat.get("tools")
    function = tools[0].get("function") if isinstance(tools, list) and tools and isinstance(tools[0], dict) else None
    if not isinstance(function, dict) or role(messages[-1]) not in ("user", "tool"):
        return None
    call = {"id": CALL_ID, "type": "function", "function": {"name": function.get("name"), "arguments": "{}"}}
    turn = [
        {"role": "assistant", "content": "", **reply, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": CALL_ID, "content": "Done."},
    ]
    return {**chat, "messages": [*messages, *turn]}
