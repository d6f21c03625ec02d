"""Text as it comes: whole characters, no more of a stop string than is certain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pkv_engine.detokenizer import Detokenizer
from pkv_engine.generation import SamplingParams
from pkv_lint.prompt import builtin

TOKENIZER = builtin.load()[1]


def pieces(text: str, **params: object) -> tuple[list[str], str | None]:
    """The pieces of a text that comes token by token, and the stop string that ended it."""
    detokenizer = Detokenizer(TOKENIZER, TOKENIZER.encode("before"), SamplingParams(**params))  # type: ignore[arg-type]
    parts = []
    for token_id in TOKENIZER.encode(text):
        part, stop = detokenizer.append(token_id)
        parts.append(part)
        if stop is not None:
            return parts, stop
    return [*parts, detokenizer.finish()], None


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_pieces_make_the_text(text: str) -> None:
    parts, stop = pieces(text)
    assert stop is None
    assert "".join(parts) == TOKENIZER.decode(TOKENIZER.encode(text))


def test_characters_come_whole() -> None:
    parts, _ = pieces("a 🦔 b")
    assert all("\ufffd" not in part for part in parts) and "".join(parts) == "a 🦔 b"


@pytest.mark.parametrize(
    ("stops", "text", "shown", "stop"),
    [
        (("STOP",), "go on STOP here", "go on ", "STOP"),
        (("\n\n",), "one\n\ntwo", "one", "\n\n"),
        (("xyz", "yz"), "wxyz", "w", "xyz"),
        (("ab", "b"), "zb", "z", "b"),
        (("never",), "nevermore"[:4], "neve", None),
    ],
)
def test_stop_strings_are_cut_off(stops: tuple[str, ...], text: str, shown: str, stop: str | None) -> None:
    parts, found = pieces(text, stop=stops)
    assert ("".join(parts), found) == (shown, stop)


@given(st.text("ab", min_size=1, max_size=20), st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3))
def test_nothing_of_a_stop_string_is_ever_shown(text: str, stops: list[str]) -> None:
    parts, stop = pieces(text, stop=tuple(stops))
    shown = "".join(parts)
    assert text.startswith(shown)
    assert not any(each in shown for each in stops)
    assert (stop is None) == (not any(each in text for each in stops))
    if stop is None:
        assert shown == text


def test_a_stop_string_can_be_kept_and_can_come_too_early() -> None:
    parts, stop = pieces("a STOP b STOP", stop=("STOP",), include_stop_str_in_output=True)
    assert ("".join(parts), stop) == ("a STOP", "STOP")
    parts, stop = pieces("STOP b", stop=("STOP",), min_tokens=50)
    assert ("".join(parts), stop) == ("STOP b", None)


def test_special_tokens_are_skipped_unless_asked_for() -> None:
    end = TOKENIZER.special_tokens["eos_token"]
    assert "".join(pieces(f"a{end}")[0]) == "a"
    assert "".join(pieces(f"a{end}", skip_special_tokens=False)[0]) == f"a{end}"
