"""What each fix does, to bodies of each API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.fixes.traffic import SYSTEM, TOOLS, Fix, clocked, conversation, tool

from pkv_lint.fixes.fixing import FIXES
from pkv_rules import all_rules

MARK = {"cache_control": {"type": "ephemeral"}}
ROTATED = [TOOLS, TOOLS[1:] + TOOLS[:1], TOOLS[2:] + TOOLS[:2]]
SORTED = sorted(TOOLS, key=lambda one: str(one["function"]["name"]))


class TestToolsOrder:
    def test_one_order_for_all(self, fix: Fix) -> None:
        run = fix(conversation(3, tools=lambda turn: ROTATED[turn]))
        assert [value["tools"] for value in run.values] == [SORTED] * 3
        assert run.status == 0
        assert "PKV201 fixed (tools sorted by name): in 2 requests, about" in run.err

    def test_an_order_that_is_kept_is_left_alone(self, fix: Fix) -> None:
        sent = conversation(3, tools=TOOLS)
        assert fix(sent).values == sent

    @pytest.mark.parametrize("api", ["messages", "responses"])
    def test_of_other_apis(self, fix: Fix, api: str) -> None:
        flat = [
            {
                "name": one["function"]["name"],
                "description": one["function"]["description"],
                **({"input_schema": {"type": "object"}} if api == "messages" else {"type": "function"}),
            }
            for one in TOOLS
        ]
        bodies = conversation(2, tools=lambda turn: flat[:: 1 - 2 * turn])
        if api == "responses":
            bodies = [{"input": body["messages"], "tools": body["tools"]} for body in bodies]
        else:
            bodies = [
                {
                    "model": "m",
                    "max_tokens": 9,
                    "system": SYSTEM,
                    "messages": body["messages"][1:],
                    "tools": body["tools"],
                }
                for body in bodies
            ]
        run = fix(bodies)
        assert [[one["name"] for one in value["tools"]] for value in run.values] == [
            ["cancel_order", "find_order", "list_orders"]
        ] * 2


class TestSchemaKeys:
    def test_one_way_of_writing(self, fix: Fix) -> None:
        run = fix(conversation(2, tools=lambda turn: [tool(name, keys=1 - 2 * turn) for name in ("f", "g")]))
        first, second = (json.dumps(value["tools"]) for value in run.values)
        assert first == second
        schema = run.values[0]["tools"][0]["function"]["parameters"]
        assert list(schema) == ["properties", "required", "type"] and schema["required"] == ["a", "b"]
        assert schema["properties"]["b"]["enum"] == ["z", "a"]
        assert list(run.values[0]["tools"][0]["function"]) == ["name", "description", "parameters"]
        assert run.status == 0


class TestCallTexts:
    FIRST = '{"code": "KB1", "n": 1.50}'
    LATER = '{"n":1.5,"code":"KB1"}'

    def test_arguments_and_results_as_they_first_came(self, fix: Fix) -> None:
        def history(text: str) -> list[dict[str, Any]]:
            call = {"id": "c1", "type": "function", "function": {"name": "find_order", "arguments": text}}
            return [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": "Find it."},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": text},
            ]

        more = [{"role": "assistant", "content": "Here. " * 40}, {"role": "user", "content": "Thanks."}]
        run = fix([{"messages": history(self.FIRST)}, {"messages": [*history(self.LATER), *more]}])
        assert run.values[1]["messages"][:4] == history(self.FIRST)
        assert "PKV303 fixed" in run.err

    def test_objects_of_the_messages_api(self, fix: Fix) -> None:
        def body(given: dict[str, Any], *more: Any) -> dict[str, Any]:
            use = {"type": "tool_use", "id": "t1", "name": "find_order", "input": given}
            result = {"type": "tool_result", "tool_use_id": "t1", "content": "found " * 40}
            history = [
                {"role": "user", "content": "Find it."},
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [result]},
            ]
            return {"model": "m", "max_tokens": 9, "system": SYSTEM, "messages": [*history, *more]}

        more = {"role": "assistant", "content": "Here."}, {"role": "user", "content": "Thanks."}
        run = fix([body({"code": "KB1", "exact": True}), body({"exact": True, "code": "KB1"}, *more)])
        assert list(run.values[1]["messages"][1]["content"][0]["input"]) == ["code", "exact"]


class TestCacheMarkers:
    def test_they_are_taken_out(self, fix: Fix) -> None:
        parts = [{"type": "text", "text": SYSTEM, **MARK}]
        body: dict[str, Any] = {
            "messages": [{"role": "system", "content": parts}, {"role": "user", "content": "hi"}],
            "tools": TOOLS,
        }
        marked = {**body, "tools": [{**TOOLS[0], **MARK, "cachePoint": {"type": "default"}}, *TOOLS[1:]]}
        run = fix([marked], "--select", "PKV603")
        assert run.values == [
            {
                **body,
                "messages": [{"role": "system", "content": [{"type": "text", "text": SYSTEM}]}, body["messages"][1]],
            }
        ]
        assert "in 1 request, no prompt changes" in run.err

    def test_not_where_they_are_data(self, fix: Fix) -> None:
        schema = {"type": "object", "properties": {"cache_control": {"type": "string"}}}
        described = {"type": "function", "function": {"name": "f", "parameters": schema}}
        body = {"messages": [{"role": "user", "content": "hi", **MARK}], "tools": [described]}
        assert fix([body]).values[0]["tools"] == [described]


class TestToolSet:
    def test_all_tools_in_all_requests(self, fix: Fix) -> None:
        bodies = conversation(4, tools=lambda turn: TOOLS[: min(turn + 1, 3)])
        del bodies[3]["tools"]
        run = fix(bodies, "--unsafe-fixes", "--select", "PKV203")
        assert [value["tools"] for value in run.values] == [TOOLS] * 4
        assert [value.get("tool_choice") for value in run.values] == [None, None, None, "none"]

    def test_not_without_being_asked_for(self, fix: Fix) -> None:
        bodies = conversation(3, tools=lambda turn: TOOLS[: turn + 1])
        run = fix(bodies, "--select", "PKV203")
        assert run.values == bodies and run.status == 1
        assert "PKV203 not fixed" in run.err and "--unsafe-fixes" in run.err

    def test_not_where_it_would_not_raise_reuse(self, fix: Fix) -> None:
        bodies = conversation(2, lambda turn: f"{turn} {SYSTEM}", tools=lambda turn: TOOLS[: turn + 2])
        run = fix(bodies, "--unsafe-fixes", "--select", "PKV203")
        assert run.values == bodies
        assert "PKV203 not fixed" in run.err


class TestVolatileLines:
    def test_a_clock_moves_into_the_messages_and_stays_there(self, fix: Fix) -> None:
        bodies = conversation(3, clocked)
        run = fix(bodies, "--unsafe-fixes")
        assert run.status == 0
        assert [value["messages"][0]["content"] for value in run.values] == [SYSTEM] * 3
        said = [f"The time is 2026-11-29 14:05:{turn:02d}.\nQuestion {turn}, please?" for turn in range(3)]
        for turn, value in enumerate(run.values):
            assert [m["content"] for m in value["messages"][1:] if m["role"] == "user"] == said[: turn + 1]

    def test_it_keeps_its_first_time_while_tools_are_called(self, fix: Fix) -> None:
        (first,) = conversation(1, clocked)
        looped = {**first, "messages": [{"role": "system", "content": clocked(7)}, first["messages"][1]]}
        looped["messages"] += [{"role": "assistant", "content": "Let me see."}, {"role": "tool", "content": "42"}]
        looped["messages"][2]["tool_calls"] = [
            {"id": "c", "type": "function", "function": {"name": "find_order", "arguments": "{}"}}
        ]
        looped["messages"][3]["tool_call_id"] = "c"
        run = fix([first, looped], "--unsafe-fixes")
        assert [value["messages"][1]["content"] for value in run.values] == [
            "The time is 2026-11-29 14:05:00.\nQuestion 0, please?"
        ] * 2

    def test_notes_move_with_their_heading(self, fix: Fix) -> None:
        notes = [("likes tea", "pays late"), ("has a dog", "moved to Rome"), ("likes tea", "has a dog", "is new here")]

        def system(turn: int) -> str:
            lines = "".join(f"- {note} and says so\n" for note in notes[turn])
            return f"{SYSTEM}\n<notes>\n{lines}</notes>\n\nBe kind."

        run = fix(conversation(3, system), "--unsafe-fixes")
        assert run.values[0]["messages"][0]["content"] == f"{SYSTEM}\n\nBe kind."
        assert run.values[2]["messages"][5]["content"] == (
            "<notes>\n- likes tea and says so\n- has a dog and says so\n- is new here and says so\n</notes>\n"
            "Question 2, please?"
        )

    def test_a_part_of_which_nothing_is_left_goes(self, fix: Fix) -> None:
        def bodies(turn: int) -> dict[str, Any]:
            parts = [{"type": "text", "text": f"Time: 2026-11-29 14:05:{turn:02d}"}, {"type": "text", "text": SYSTEM}]
            messages = conversation(turn + 1)[turn]["messages"][1:]
            return {"model": "m", "max_tokens": 9, "system": parts, "messages": messages}

        run = fix([bodies(0), bodies(1)], "--unsafe-fixes")
        assert [value["system"] for value in run.values] == [[{"type": "text", "text": SYSTEM}]] * 2
        assert run.values[1]["messages"][2]["content"] == "Time: 2026-11-29 14:05:01\nQuestion 1, please?"

    def test_of_the_responses_api(self, fix: Fix) -> None:
        bodies = [
            {"instructions": body["messages"][0]["content"], "input": body["messages"][1:]}
            for body in conversation(2, clocked)
        ]
        run = fix(bodies, "--unsafe-fixes")
        assert [value["instructions"] for value in run.values] == [SYSTEM] * 2
        assert run.values[1]["input"][2]["content"].startswith("The time is 2026-11-29 14:05:01.\n")

    def test_each_conversation_keeps_its_own(self, fix: Fix) -> None:
        def system(turn: int) -> str:
            return f"{clocked(turn)}\n{clocked(turn)}"  # the same line twice

        first, second = conversation(2, system), conversation(2, lambda turn: system(turn + 30))
        lines = [
            {"session_id": name, "request": body}
            for pair in zip(first, second, strict=True)
            for name, body in zip("ab", pair, strict=True)
        ]
        run = fix(lines, "--unsafe-fixes")
        bodies = [value["request"]["messages"] for value in run.values]
        assert [messages[0]["content"] for messages in bodies] == [f"{SYSTEM}\n{SYSTEM}"] * 4
        assert [messages[-1]["content"][:66] for messages in bodies] == [
            f"The time is 2026-11-29 14:05:{second}.\n" * 2 for second in ("00", "30", "01", "31")
        ]
        assert [messages[1]["content"][:33] for messages in bodies[2:]] == [
            f"The time is 2026-11-29 14:05:{second}.\n" for second in ("00", "30")
        ]

    @pytest.mark.parametrize("clock", ["It is 14:05:{:02d}.", "Since 14:05:{:02d} it is late, Dr. Nobody."])
    def test_of_a_paragraph_the_sentence(self, fix: Fix, clock: str) -> None:
        paragraph = SYSTEM.strip().replace("\n", " ")
        for system, mended in (
            (f"{{}} {paragraph}\nBe kind.", f"{paragraph}\nBe kind."),
            (f"{paragraph} {{}}\nBe kind.", f"{paragraph}\nBe kind."),
            (f"{paragraph} {{}} Be kind.", f"{paragraph} Be kind."),
            (f"{paragraph} {{}}", paragraph),
        ):
            run = fix(
                conversation(2, system=[system.format(clock.format(turn)) for turn in range(2)].__getitem__),
                "--unsafe-fixes",
            )
            assert [value["messages"][0]["content"] for value in run.values] == [mended] * 2
            said = [message["content"] for message in run.values[1]["messages"] if message["role"] == "user"]
            assert said == [f"{clock.format(turn)}\nQuestion {turn}, please?" for turn in range(2)]

    @pytest.mark.parametrize(
        ("system", "mended"),
        [
            ("{0}{1}", "{1}"),
            ("{1}{0}{1}", "{1}{1}"),
            ("{1}{0}\n{1}", "{1}\n{1}"),
        ],
    )
    def test_sentences_without_spaces(self, fix: Fix, system: str, mended: str) -> None:
        rules = "\u8349\u3092\u5207\u308a\u300c\u306f\u3044\u3002\u300d\u3068\u7b54\u3048\u308b\u3002" * 30
        clock = "\u4eca\u306f14\u664205\u5206{:02d}\u79d2\u3002"
        run = fix(conversation(2, lambda turn: system.format(clock.format(turn), rules)), "--unsafe-fixes")
        assert [value["messages"][0]["content"] for value in run.values] == [mended.format("", rules)] * 2

    def test_not_a_long_sentence_that_only_holds_a_clock(self, fix: Fix) -> None:
        words = SYSTEM.replace(".", ",").replace("\n", " ")
        bodies = conversation(2, lambda turn: f"It is 14:05:{turn:02d}, {words}\nBe kind.")
        run = fix(bodies, "--unsafe-fixes")
        assert run.values == bodies
        assert "PKV101 not fixed" in run.err and f"not possible in {run.path}" in run.err


def test_the_pages_of_the_rules_say_which_fixes_there_are() -> None:
    safe = {code for fix in FIXES if fix.safe for code in fix.codes}
    unsafe = {code for fix in FIXES if not fix.safe for code in fix.codes}
    said = {rule.CODE: (rule.__doc__ or "").partition("## Fix safety")[2] for rule in all_rules()}
    assert {code for code, text in said.items() if "`--fix`" in text} == safe
    assert {code for code, text in said.items() if "`--unsafe-fixes`" in text} == unsafe
