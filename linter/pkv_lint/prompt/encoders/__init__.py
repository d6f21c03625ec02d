"""Renderers of models whose prompts are not made by a Jinja chat template, and which of them a model gets."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatch
from importlib import import_module
from typing import Any, Literal, Protocol, runtime_checkable

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.messages import ContentFormat, Message

Mode = Literal["hf", "harmony", "mistral", "deepseek_v32", "deepseek_v4"]

# vLLM's `config/model.py` picks these by architecture when the mode is `auto`.
_MODE_OF_ARCHITECTURE = {
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "DeepseekV4ForCausalLM": "deepseek_v4",
    "DeepseekV4ForConditionalGeneration": "deepseek_v4",
    "DeepseekV41ForCausalLM": "deepseek_v41",
    "InklingForCausalLM": "inkling",
    "InklingForConditionalGeneration": "inkling",
    "KimiK3ForConditionalGeneration": "kimi_k3",
    "MoonshotKimiaForCausalLM": "kimi_audio",
}
_SUPPORTED: dict[str, Mode] = {
    "hf": "hf",
    "mistral": "mistral",
    "deepseek_v32": "deepseek_v32",
    "deepseek_v4": "deepseek_v4",
    # Another tokenizer class, but rendered by the chat template (`renderers/registry.py`).
    "kimi_audio": "hf",
    "alpamayo2_super": "hf",
}
_UNSUPPORTED = frozenset({"cohere", "deepseek_v41", "inkling", "kimi_k3", "terratorch"})


class Encoder(Protocol):
    """Makes a prompt as ids, without a text of its own."""

    def encode(self, body: Mapping[str, Any], now: datetime) -> Encoded:
        """The prompt of a validated chat body, not yet truncated. Raises RenderError where the server refuses it."""
        ...

    def encode_completion(self, text: str) -> array[int]:
        """The ids of generated text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """What ids stand for, special tokens included. Fails as its library does for ids that it does not know."""
        ...


@runtime_checkable
class ResponsesEncoder(Protocol):
    """Makes a prompt of a Responses body without a chat body in between."""

    def encode_responses(self, body: Mapping[str, Any], now: datetime) -> Encoded: ...


class TextEncoder(Protocol):
    """Makes the text of a prompt, in place of a chat template."""

    CONTENT_FORMAT: ContentFormat

    def encode_text(
        self, messages: Sequence[Message], tools: Sequence[Any] | None, options: Mapping[str, Any]
    ) -> str: ...


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt that was made as ids. `text` is what the ids decode to, for reading: special tokens that stood in a
    message as plain text look the same there as real ones."""

    token_ids: array[int]
    text: str


def select(
    model_type: str | None, architectures: Sequence[str], tokenizer_mode: str, model_dir_files: Collection[str]
) -> Mode:
    """The renderer that vLLM uses for a model: `hf` is the Jinja chat template.

    `model_type` and `architectures` are those of config.json, `tokenizer_mode` is `--tokenizer-mode` (`auto` by
    default), `model_dir_files` are the names of the files next to it. Raises InputError for a renderer that is neither
    the chat template nor one of the encoders here.
    """
    if model_type == "gpt_oss":
        return "harmony"
    mode = tokenizer_mode.lower()
    if mode == "auto":
        known = [_MODE_OF_ARCHITECTURE[name] for name in architectures if name in _MODE_OF_ARCHITECTURE]
        mode = known[0] if known else "mistral" if _is_mistral_directory(model_dir_files) else "hf"
    if mode in _UNSUPPORTED:
        raise InputError(f"prompts of the renderer {mode!r} cannot be made here: it uses no chat template of the model")
    if mode not in _SUPPORTED:
        raise InputError(f"there is no --tokenizer-mode {tokenizer_mode!r}")
    return _SUPPORTED[mode]


def text_encoder(mode: Mode) -> TextEncoder:
    """The encoder of a mode that makes text."""
    module: Any = import_module(f"{__name__}.{mode}")
    return module  # type: ignore[no-any-return]


def _is_mistral_directory(files: Collection[str]) -> bool:
    return any(fnmatch(name, "consolidated*.safetensors") for name in files) and any(
        name == "tekken.json" or fnmatch(name, "tokenizer.model.v*") for name in files
    )
