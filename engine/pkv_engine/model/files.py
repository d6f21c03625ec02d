"""A model that the user named, in parts: configuration, weights, renderer, tokenizer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os.path import expanduser, isdir, isfile
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from pkv_engine.model.config import DecoderConfig, token_ids
from pkv_engine.model.gguf_file import GGUFFile
from pkv_engine.model.tiny import NAME, tiny_config, tiny_renderer
from pkv_engine.model.weights import Source, random, safetensors
from pkv_engine.options import EngineOptions
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.template import (
    MODEL_FILES,
    TEMPLATE_FILES,
    download,
    model_directory,
    read_object,
)
from pkv_lint.prompt.tokenizer import Tokenizer

WEIGHT_FILES = ("*.safetensors", "model.safetensors.index.json", "generation_config.json")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """`origin` is the file or directory to blame for weights that are wrong; `rope_factors` as for `cos_sin_table`."""

    config: DecoderConfig
    source: Source
    origin: str
    renderer: Renderer
    tokenizer: Tokenizer
    rope_factors: torch.Tensor | None = None

    @classmethod
    def find(cls, options: EngineOptions) -> ModelFiles:
        """Raises InputError for what cannot be found or is not supported."""
        if options.model == NAME:
            if options.tokenizer is not None:
                raise InputError("the weights of tiny are random: it has no use for another --tokenizer")
            renderer, tokenizer = tiny_renderer(options.chat_template)
            return cls(tiny_config(tokenizer), random(options.seed), NAME, renderer, tokenizer)
        path = expanduser(options.model)
        if isfile(path):
            return cls._from_gguf(Path(path), options)
        return cls._from_directory(_directory(options), options)

    @classmethod
    def _from_directory(cls, directory: Path, options: EngineOptions) -> ModelFiles:
        file = directory / "config.json"
        if not file.is_file():
            raise InputError("there is no config.json", file=str(directory))
        config = DecoderConfig.from_json(read_object(file), str(file))
        generation = read_object(directory / "generation_config.json")
        vocabulary = Path(expanduser(options.tokenizer)) if options.tokenizer else directory
        tokenizer = Tokenizer.load(vocabulary)
        ends = token_ids(tokenizer.token_id(tokenizer.special_tokens.get("eos_token", "")))
        return cls(
            replace(config, eos_token_ids=config.eos_token_ids | token_ids(generation.get("eos_token_id")) | ends),
            safetensors(directory),
            str(directory),
            _renderer(directory, options),
            tokenizer,
        )

    @classmethod
    def _from_gguf(cls, path: Path, options: EngineOptions) -> ModelFiles:
        file = GGUFFile(path)
        with TemporaryDirectory() as folder:
            directory = Path(folder)
            try:
                file.unpack(directory, with_vocabulary=options.tokenizer is None)
                return cls(
                    DecoderConfig.from_json(read_object(directory / "config.json"), str(path)),
                    file.weights(),
                    str(path),
                    _renderer(directory, options),
                    Tokenizer.load(Path(expanduser(options.tokenizer)) if options.tokenizer else directory),
                    file.rope_factors(),
                )
            except InputError as error:
                if error.file is not None and error.file.startswith(folder):
                    error.file = str(path)  # the name that the user knows
                raise
            except Exception as error:  # of other libraries, where metadata does not fit together
                raise InputError(f"its metadata cannot be used: {error}", file=str(path)) from None


def _renderer(directory: Path, options: EngineOptions) -> Renderer:
    return Renderer.load(str(directory), options.chat_template, options.tokenizer, offline=options.offline)


def _directory(options: EngineOptions) -> Path:
    """The model's directory, weights included: as named, in the hub's cache, or from the hub."""
    directory = model_directory(options.model, offline=options.offline)
    if any(directory.glob("*.safetensors")) or options.offline or isdir(expanduser(options.model)):
        return directory
    return download(options.model, [*MODEL_FILES, *TEMPLATE_FILES, *WEIGHT_FILES], None)
