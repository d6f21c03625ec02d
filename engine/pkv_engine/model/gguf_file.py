"""Models in one GGUF file: llama.cpp's names and metadata, turned into those of a Hugging Face directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pkv_lint.prompt.errors import InputError

if TYPE_CHECKING:
    import torch
    from gguf import GGUFReader
    from tokenizers import Tokenizer

    from pkv_engine.model.weights import Source

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
"""Mistral's files say `llama`."""

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{%s}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PRE_TOKENIZERS: Mapping[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama-bpe": (_LLAMA3 % "1,3",),
    "qwen2": (_LLAMA3 % "1",),
}
"""`tokenizer.ggml.pre`: the patterns by which text is cut into words, one after the other."""


class GGUFFile:
    """A file that is read as it is needed."""

    def __init__(self, path: Path) -> None:
        """Raises InputError for what is no GGUF file, or one of another architecture."""
        self.path = path
        try:
            self._reader = _reader(path)
        except ImportError:
            raise InputError("GGUF files need the package gguf: pip install 'pkv-lint[engine]'") from None
        except (OSError, ValueError, IndexError, KeyError) as error:
            raise InputError(f"not a GGUF file that can be read: {error}", file=str(path)) from None
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        name = self._get("general.architecture")
        if name not in ARCHITECTURES:
            raise InputError(
                f"the architecture {name} is not supported, only {', '.join(ARCHITECTURES)}", file=str(path)
            )
        self.architecture: str = name

    def _get(self, key: str, default: Any = None) -> Any:
        field = self._reader.fields.get(key.replace("{arch}", getattr(self, "architecture", "")))
        return default if field is None else field.contents()

    def config(self) -> dict[str, Any]:
        """The metadata as a config.json."""
        get = self._get
        heads, hidden = get("{arch}.attention.head_count"), get("{arch}.embedding_length")
        ends = [get(f"tokenizer.ggml.{end}_token_id") for end in ("eos", "eot")]
        config = {
            "architectures": [ARCHITECTURES[self.architecture]],
            "vocab_size": len(get("tokenizer.ggml.tokens", ())),
            "hidden_size": hidden,
            "intermediate_size": get("{arch}.feed_forward_length"),
            "num_hidden_layers": get("{arch}.block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": get("{arch}.attention.head_count_kv", heads),
            "head_dim": get("{arch}.attention.key_length"),
            "max_position_embeddings": get("{arch}.context_length"),
            "rms_norm_eps": get("{arch}.attention.layer_norm_rms_epsilon"),
            "rope_theta": get("{arch}.rope.freq_base", 10000.0),
            "tie_word_embeddings": "output.weight" not in self._tensors,
            "attention_bias": "blk.0.attn_q.bias" in self._tensors and "blk.0.attn_output.bias" in self._tensors,
            "eos_token_id": [token for token in ends if token is not None],
        }
        kind = get("{arch}.rope.scaling.type", "none")
        if kind != "none":
            config["rope_scaling"] = {
                "rope_type": kind,
                "factor": get("{arch}.rope.scaling.factor"),
                "original_max_position_embeddings": get("{arch}.rope.scaling.original_context_length"),
            }
        return config

    def rope_factors(self) -> torch.Tensor | None:
        return self._tensor("rope_freqs.weight")

    def weights(self) -> Source:
        """The weights under Hugging Face's names, dequantised to float32."""
        heads = {
            "attn_q": self._get("{arch}.attention.head_count"),
            "attn_k": self._get("{arch}.attention.head_count_kv", self._get("{arch}.attention.head_count")),
        }

        def source(name: str, shape: tuple[int, ...]) -> torch.Tensor | None:
            stem, kind = name.rsplit(".", 1)
            block = ""
            if stem.startswith("model.layers."):
                number, stem = stem.removeprefix("model.layers.").split(".", 1)
                block = f"blk.{number}."
            tensor = self._tensor(f"{block}{NAMES.get(stem, stem)}.{kind}")
            if tensor is not None and self.architecture == "llama" and NAMES.get(stem) in heads:
                # llama.cpp turns neighbouring pairs: the rows of a head stand as 0, n/2, 1, n/2 + 1, ...
                tensor = tensor.unflatten(0, (heads[NAMES[stem]], -1, 2)).transpose(1, 2).flatten(0, 2)
            return tensor

        return source

    def _tensor(self, name: str) -> torch.Tensor | None:
        import torch
        from gguf import dequantize

        found = self._tensors.get(name)
        if found is None:
            return None
        return torch.tensor(dequantize(found.data, found.tensor_type))

    def unpack(self, directory: Path, *, with_vocabulary: bool) -> None:
        """Writes what a renderer reads of a model directory: config.json, tokenizer_config.json, and tokenizer.json.

        Raises InputError for vocabularies that are not byte-level BPE of a known kind.
        """
        tokens = self._get("tokenizer.ggml.tokens")
        texts: dict[str, Any] = {"chat_template": self._get("tokenizer.chat_template")}
        for name in ("bos", "eos"):
            if (token_id := self._get(f"tokenizer.ggml.{name}_token_id")) is not None:
                texts[f"{name}_token"] = tokens[token_id]
        for file, content in (("config.json", self.config()), ("tokenizer_config.json", texts)):
            given = {key: value for key, value in content.items() if value is not None}
            (directory / file).write_text(json.dumps(given), encoding="utf-8")
        if with_vocabulary:
            self._vocabulary(tokens).save(str(directory / "tokenizer.json"))

    def _vocabulary(self, tokens: list[str]) -> Tokenizer:
        from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

        kind, pre = self._get("tokenizer.ggml.model"), self._get("tokenizer.ggml.pre", "gpt-2")
        if kind != "gpt2" or pre not in PRE_TOKENIZERS:
            raise InputError(
                f"its vocabulary ({kind}, {pre}) cannot be used: name the model's tokenizer.json with --tokenizer",
                file=str(self.path),
            )
        merges = [tuple(merge.split(" ", 1)) for merge in self._get("tokenizer.ggml.merges", ())]
        vocabulary = {token: number for number, token in enumerate(tokens)}
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre == "llama-bpe"))
        split = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PRE_TOKENIZERS[pre]]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [*split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        tokenizer.decoder = decoders.ByteLevel()
        control, user_defined = 3, 4
        for token, type_ in zip(tokens, self._get("tokenizer.ggml.token_type"), strict=True):
            if type_ in (control, user_defined):
                tokenizer.add_tokens([AddedToken(token, special=type_ == control, normalized=False)])
        if self._get("tokenizer.ggml.add_bos_token", False):
            bos = tokens[self._get("tokenizer.ggml.bos_token_id")]
            tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{bos} $A", special_tokens=[(bos, vocabulary[bos])]
            )
        return tokenizer


def _reader(path: Path) -> GGUFReader:
    from gguf import GGUFReader

    class Bounded(GGUFReader):
        """Behind the end of a file the library finds nothing, and would go on with that for as many items as a broken
        count says."""

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            if int(offset) + int(count) > len(self.data):
                raise ValueError("it ends before what it counts")
            return super()._get(offset, dtype, count, override_order)

    return Bounded(path)
