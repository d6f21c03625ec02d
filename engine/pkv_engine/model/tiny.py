"""`--model tiny`: a decoder with random weights over the linter's built-in layout and vocabulary. It says nothing of
sense, but its KV cache is as real as any, it needs no network, and a seed names its weights."""

from __future__ import annotations

from pkv_engine.model.config import DecoderConfig, RopeConfig
from pkv_lint.prompt import builtin
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.template import ChatTemplates, stated_template
from pkv_lint.prompt.tokenizer import Tokenizer

NAME = "tiny"


def tiny_config(tokenizer: Tokenizer) -> DecoderConfig:
    """Large enough for every kernel, small enough for tests: 1.3 million weights."""
    end = tokenizer.token_id(tokenizer.special_tokens["eos_token"])
    assert end is not None
    return DecoderConfig(
        vocab_size=tokenizer.backend.get_vocab_size(),
        hidden_size=64,
        intermediate_size=128,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_size=64,
        max_model_len=32768,
        rms_norm_eps=1e-6,
        rope=RopeConfig(),
        tie_word_embeddings=False,
        eos_token_ids=frozenset((end,)),
    )


def tiny_renderer(chat_template: str | None) -> tuple[Renderer, Tokenizer]:
    """The built-in layout (or another template) as the model's own: token ids are exact, not approximate."""
    layout, tokenizer = builtin.load()
    stated = stated_template(chat_template) if chat_template is not None else None
    return Renderer(ChatTemplates(stated=stated, tokenizer=layout), tokenizer, layout="builtin"), tokenizer
