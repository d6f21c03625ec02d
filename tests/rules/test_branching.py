"""Traffic without faults, however it branches: nothing to look at for a user."""

from __future__ import annotations

import copy
import random

import pytest

from .agents import TOOLS, assistant, call, prose, result, user
from .conversations import Line, Message, lint, loud, prompt
from .habits import KEEPS_REASONING

SHORT = ("Go on.", "Yes.", "Continue.", "Thanks!", "Why?", "好的", "Und weiter?", "तो आगे?")


class Client:
    """An agent's client that keeps every message as it was, and goes where it likes: on, back, aside."""

    def __init__(self, rng: random.Random, session: str | None, *, tools: bool) -> None:
        self.rng = rng
        self.session = session
        self.lines: list[Line] = []
        self.head = prompt() if rng.random() < 0.8 else ""
        self.tools = TOOLS if tools else None
        self.reasons = rng.random() < 0.4
        self.states: list[list[Message]] = [[self.question()]]
        self.ids = 0

    def question(self) -> Message:
        text = prose(self.rng.random(), self.rng.randint(6, 60))
        if self.rng.random() < 0.2:
            text = self.rng.choice(SHORT)
        if self.rng.random() < 0.2:
            return user([{"type": "text", "text": text}, {"type": "text", "text": prose(self.rng.random(), 20)}])
        return user(text)

    def send(self, messages: list[Message], head: str | None = None) -> None:
        front = [{"role": "system", "content": self.head}] if self.head else []
        if head is not None:
            front = [{"role": "system", "content": head}]
        body = {"model": "m", "messages": [*front, *copy.deepcopy(messages)]}
        if self.tools and head is None:
            body["tools"] = self.tools
        self.lines.append({"request": body} if self.session is None else {"session_id": self.session, "request": body})

    def reply(self) -> list[Message]:
        """What the model says next, and the input that follows."""
        thought = {"reasoning_content": prose(self.rng.random(), 20)} if self.reasons else {}
        if not self.tools or self.rng.random() < 0.4:
            text = self.rng.choice(SHORT) if self.rng.random() < 0.1 else prose(self.rng.random())
            return [assistant(text, **thought), self.question()]
        calls = []
        for _ in range(self.rng.choice([1, 1, 1, 3])):
            self.ids += 1
            calls.append(call(f"{self.session} {self.ids} {self.rng.random()}"))
        text = prose(self.rng.random(), 8) if self.rng.random() < 0.5 else ""
        results = [result(made, self.rng.choice(["", "Ok.", prose(self.rng.random(), 50)])) for made in calls]
        return [assistant(text, *calls, **thought), *results]

    def step(self) -> None:
        """One thing that a client does."""
        state = self.states[-1]
        chance = self.rng.random()
        self.send(state)
        if chance < 0.08:  # the request is sent again
            self.send(state)
        if chance < 0.2 and state[-1]["role"] == "user":  # the user asks something else instead
            self.states.append([*state[:-1], self.question()])
        elif chance < 0.28 and len(self.states) > 2:  # back to an earlier state, and on from there
            back = self.rng.choice(self.states[:-1])
            self.send(back)
            self.states.append([*back, *self.reply()])
        elif chance < 0.36:  # several samples, one of which is kept
            for _ in range(self.rng.randint(1, 3)):
                self.send(state)
                self.send([*state, *self.reply()])
            self.send(state)
            self.states.append([*state, *self.reply()])
        elif chance < 0.44:  # something aside, at the end
            self.send([*state, user("Give this conversation a title of five words.")])
            self.states.append([*state, *self.reply()])
        elif chance < 0.5:  # a sub-agent with a task and a head of its own
            other = Client(self.rng, self.session, tools=False)
            other.head = "You look things up. " + prose(self.rng.random(), 60)
            for _ in range(self.rng.randint(1, 4)):
                other.step()
            self.lines += other.lines
            self.states.append([*state, *self.reply()])
        elif chance < 0.55:  # a new conversation in the session
            self.states = [[self.question()]]
        else:
            self.states.append([*state, *self.reply()])


def traffic(seed: int) -> list[Line]:
    """Some clients whose requests mix."""
    rng = random.Random(seed)
    tools = rng.random() < 0.6
    clients = [Client(rng, None if rng.random() < 0.3 else f"s{n}", tools=tools) for n in range(rng.randint(1, 4))]
    for _ in range(rng.randint(4, 30)):
        rng.choice(clients).step()
    queues = [client.lines for client in clients if client.lines]
    mixed = []
    while queues:
        queue = rng.choice(queues)
        mixed.append(queue.pop(0))
        queues = [queue for queue in queues if queue]
    return mixed


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_said_about_conversations_that_only_branch(seed: int) -> None:
    template = KEEPS_REASONING if seed % 2 else None
    assert loud(lint(traffic(seed), chat_template=template)) == []
