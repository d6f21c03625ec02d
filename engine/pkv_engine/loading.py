"""From what a user named to an engine that runs."""

from __future__ import annotations

from dataclasses import dataclass

from pkv_engine.engine import Engine
from pkv_engine.options import EngineOptions
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """An engine with what belongs to its model: the renderer of its prompts and the vocabulary of its replies."""

    name: str
    engine: Engine
    renderer: Renderer
    tokenizer: Tokenizer
    max_model_len: int


def load(options: EngineOptions) -> LoadedModel:
    """Raises InputError for what cannot be loaded: no such model, another architecture, torch not installed."""
    raise NotImplementedError
