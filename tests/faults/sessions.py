"""Clean agent sessions out of a seed: prompts that only ever grow, as an agent loop sends them."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

WORDS = """
account address agent amount answer archive article balance batch border branch bridge budget builder button
cable camera canvas carrier cell chapter circle client cluster column command compile config contact cursor
customer data delta deploy device dialog domain driver editor engine entry error event export field filter
folder format forward garden gateway global graph group handler header history image import index inner input
invoice issue item journal kernel label layer ledger letter level library limit line loader logger machine
manager marker member memory message metric mirror model module monitor network notice number object option
order origin output owner packet panel parcel parser path pattern payload payment period person pixel plan
pointer policy portal price printer process product profile project proxy query queue range reader record
refund region register release remote render report request result river route sample scanner schedule schema
scope screen script search section sensor server service session signal silver socket source spring stable
status stock storage stream string student style subject summary surface switch symbol system table target
team template terminal ticket timer token topic tracker traffic transfer travel tunnel update upload user
value vector vendor version video view volume wallet warehouse weather window worker
""".split()  # noqa: SIM905  (a list of 160 lines says no more)


def sentence(rng: random.Random, low: int = 6, high: int = 16) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(low, high))).capitalize() + "."


def paragraph(rng: random.Random, count: int) -> str:
    return " ".join(sentence(rng) for _ in range(count))


def tool(rng: random.Random, name: str) -> dict[str, Any]:
    """A tool with a nested schema."""
    properties: dict[str, Any] = {}
    for field in rng.sample(WORDS, rng.randint(2, 4)):
        kind = rng.choice(["string", "integer", "object"])
        value: dict[str, Any] = {"type": kind, "description": sentence(rng, 3, 8)}
        if kind == "object":
            inner = rng.sample(WORDS, 2)
            value["properties"] = {key: {"type": "string", "description": sentence(rng, 2, 5)} for key in inner}
            value["required"] = inner
        properties[field] = value
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": paragraph(rng, 2),
            "parameters": {"type": "object", "properties": properties, "required": list(properties)[:2]},
        },
    }


def system_text(rng: random.Random) -> str:
    lines = [f"You are {rng.choice(WORDS).capitalize()}, an assistant for the {rng.choice(WORDS)} team.", ""]
    for _ in range(rng.randint(2, 5)):
        lines += [f"# {rng.choice(WORDS).capitalize()} rules", paragraph(rng, rng.randint(2, 4)), ""]
    return "\n".join(lines)


def clean_session(rng: random.Random, turns: int, *, calls: bool = True) -> list[dict[str, Any]]:
    """The chat bodies of one conversation, each the one before it and what came since."""
    names = sorted(
        rng.sample([f"{a}_{b}" for a in ("find", "open", "make", "send") for b in WORDS[:40]], rng.randint(3, 6))
    )
    tools = [tool(rng, name) for name in names]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": system_text(rng)},
        {"role": "user", "content": paragraph(rng, 2)},
    ]
    bodies = []
    for turn in range(turns):
        bodies.append(
            {"model": "m", "messages": copy.deepcopy(messages), "tools": copy.deepcopy(tools), "temperature": 0}
        )
        if calls and (turn == 0 or rng.random() < 0.5):
            chosen = rng.choice(tools)["function"]
            arguments = {key: rng.choice(WORDS) for key in chosen["parameters"]["properties"]}
            call = {
                "id": f"call_{turn}_{rng.randrange(10**6)}",
                "type": "function",
                "function": {"name": chosen["name"], "arguments": json.dumps(arguments)},
            }
            messages.append({"role": "assistant", "content": sentence(rng), "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": paragraph(rng, rng.randint(1, 4))})
        else:
            messages.append({"role": "assistant", "content": paragraph(rng, rng.randint(1, 3))})
            messages.append({"role": "user", "content": paragraph(rng, rng.randint(1, 2))})
    return bodies
