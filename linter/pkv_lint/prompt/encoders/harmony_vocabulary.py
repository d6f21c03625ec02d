"""The vocabulary of gpt-oss for the harmony library, without a download."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pkv_lint.prompt.errors import InputError

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding  # type: ignore[import-untyped]

_VOCABULARY = "o200k_base.tiktoken"
_ORDINARY_TOKENS = 199_998


def load_encoding(file: Path) -> HarmonyEncoding:
    """The library's encoding for gpt-oss' tokenizer.json. Raises InputError without the library or for another file."""
    try:
        from openai_harmony import HarmonyEncodingName, HarmonyError, load_harmony_encoding
    except ImportError:
        raise InputError("prompts of gpt-oss need the library openai-harmony: install pkv-lint[encoders]") from None
    directory = tiktoken_vocabulary(file)
    before = os.environ.get("TIKTOKEN_ENCODINGS_BASE")
    # The library fetches its vocabulary from the net unless this variable names a directory with the file.
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(directory)
    try:
        return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    except HarmonyError as error:
        raise InputError(f"not the vocabulary of gpt-oss: {error}", file=str(file)) from None
    finally:
        if before is None:
            del os.environ["TIKTOKEN_ENCODINGS_BASE"]
        else:
            os.environ["TIKTOKEN_ENCODINGS_BASE"] = before


def tiktoken_vocabulary(file: Path) -> Path:
    """A directory with the vocabulary in tiktoken's format, made from tokenizer.json once and kept in the cache."""
    try:
        source = file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(file)) from None
    key = hashlib.sha256(source).hexdigest()
    home = os.environ.get("XDG_CACHE_HOME")
    directory = (Path(home) if home else Path.home() / ".cache") / "pkv-lint" / key
    try:
        _write_vocabulary(source, directory / _VOCABULARY, file)
    except OSError:
        # A home that cannot be written to; the directory for temporary files is good for one run at least.
        directory = Path(tempfile.mkdtemp(prefix="pkv-lint-"))
        _write_vocabulary(source, directory / _VOCABULARY, file)
    return directory


def _write_vocabulary(tokenizer: bytes, target: Path, file: Path) -> None:
    if target.exists():
        return
    lines = _tiktoken_lines(tokenizer, file)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(lines)
    os.replace(name, target)


def _tiktoken_lines(tokenizer: bytes, file: Path) -> bytes:
    try:
        vocabulary = json.loads(tokenizer)["model"]["vocab"]
        ranked = sorted((index, piece) for piece, index in vocabulary.items() if index < _ORDINARY_TOKENS)
        alphabet = _byte_alphabet()
        return b"".join(
            b"%s %d\n" % (base64.b64encode(bytes(alphabet[character] for character in piece)), index)
            for index, piece in ranked
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError("not a tokenizer.json with a byte-level vocabulary", file=str(file)) from None


def _byte_alphabet() -> dict[str, int]:
    """The character that byte-level BPE (of GPT-2) writes for each byte: printable ones as they are, the others moved
    behind the 256 in their order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
