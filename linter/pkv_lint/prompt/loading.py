"""Putting a renderer together from what the user named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pkv_lint.prompt import builtin, encoders
from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.model_config import ModelConfig
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.template import ChatTemplates, directory_templates, model_directory, stated_template
from pkv_lint.prompt.tokenizer import Tokenizer

HARMONY_TOKENS = ("<|start|>", "<|channel|>", "<|message|>", "<|call|>", "<|return|>")
"""Special tokens that only gpt-oss' vocabulary has; its repository needs no chat template on vLLM."""


def load_renderer(
    model: str | None,
    chat_template: str | None,
    tokenizer: str | None,
    vllm_args: str | Sequence[str] | None,
    *,
    offline: bool,
) -> Renderer:
    """See `Renderer.load`."""
    deployment = Deployment.from_vllm_args(vllm_args)
    files = Files.find(
        model or deployment.model,
        chat_template or deployment.chat_template,
        tokenizer or deployment.tokenizer,
        deployment,
        offline=offline,
    )
    if files.named is None:
        source, small = builtin.load()
        templates = ChatTemplates(tokenizer=source)
        # Nothing says that the model takes no images, either.
        return Renderer(templates, small, deployment, layout="builtin", approximate=True, multimodal=True)
    config = files.config
    if config is not None and deployment.stated and deployment.max_model_len is None:
        deployment = replace(deployment, max_model_len=config.max_model_len)
    mode = encoders.select(
        config.model_type if config else None,
        config.architectures if config else (),
        deployment.tokenizer_mode,
        files.names,
    )
    multimodal = config is not None and config.multimodal
    hybrid = config is not None and any(layer.kind != "full" for layer in config.layers)
    if mode == "mistral":
        from pkv_lint.prompt.encoders.mistral import MistralEncoder

        if files.vocabulary is None:
            raise InputError("Mistral prompts need the model's tokenizer (--tokenizer or --model)")
        mistral = MistralEncoder(files.vocabulary, deployment, text_model=None if multimodal else deployment.name)
        return Renderer(
            ChatTemplates(), None, deployment, mode=mode, encoder=mistral, multimodal=multimodal, hybrid=hybrid
        )
    vocabulary = Tokenizer.load(files.vocabulary) if files.vocabulary else None
    templates = files.templates
    no_template = templates == ChatTemplates()
    if (
        vocabulary is not None
        and no_template
        and all(vocabulary.token_id(token) is not None for token in HARMONY_TOKENS)
    ):
        mode = "harmony"
    if mode == "harmony":
        if vocabulary is None or files.vocabulary is None:
            raise InputError("gpt-oss prompts need the model's tokenizer (--tokenizer or --model)")
        from pkv_lint.prompt.encoders.harmony import HarmonyEncoder

        harmony = HarmonyEncoder(files.vocabulary, deployment)
        return Renderer(
            templates, vocabulary, deployment, mode=mode, encoder=harmony, multimodal=multimodal, hybrid=hybrid
        )
    if mode == "hf" and no_template:
        raise InputError("there is no chat template: name one with --chat-template", file=files.named)
    approximate = vocabulary is None
    return Renderer(
        templates,
        vocabulary or builtin.load()[1],
        deployment,
        mode=mode,
        approximate=approximate,
        multimodal=multimodal,
        special_tokens={} if approximate else None,
        hybrid=hybrid,
    )


@dataclass(frozen=True, slots=True)
class Files:
    """What was found for the names given: the model's directory, its templates, and where its vocabulary is (a file or
    a directory). `named` is the name to blame, None when nothing was named."""

    directory: Path | None
    templates: ChatTemplates
    vocabulary: Path | None
    named: str | None
    overrides: Deployment

    @classmethod
    def find(
        cls,
        model: str | None,
        chat_template: str | None,
        tokenizer: str | None,
        deployment: Deployment,
        *,
        offline: bool,
    ) -> Files:
        directory = model_directory(model, offline=offline, revision=deployment.revision) if model else None
        vocabulary = directory
        if tokenizer is not None:
            path = Path(tokenizer).expanduser()
            vocabulary = path if path.exists() else model_directory(tokenizer, offline=offline)
        folder = vocabulary if vocabulary is None or vocabulary.is_dir() else vocabulary.parent
        home = directory or folder
        templates = directory_templates(home) if home else ChatTemplates()
        if chat_template is not None:
            stated = stated_template(chat_template)
            files = {} if stated == chat_template else {stated: chat_template}
            templates = replace(templates, stated=stated, files={**templates.files, **files})
        return cls(directory, templates, vocabulary, model or tokenizer or chat_template, deployment)

    @property
    def config(self) -> ModelConfig | None:
        """config.json of the model; of `--hf-overrides` alone where no directory is known."""
        overrides = self.overrides.hf_overrides
        if self.directory is not None:
            return ModelConfig.load(self.directory, overrides)
        return ModelConfig.from_json(overrides) if overrides else None

    @property
    def names(self) -> list[str]:
        """File names by which a Mistral repository is recognised."""
        folder = self.directory or self.vocabulary
        if folder is None:
            return []
        return [entry.name for entry in folder.iterdir()] if folder.is_dir() else [folder.name]
