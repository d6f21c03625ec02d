"""The server a prompt is meant for: what a pasted `vllm serve …` line and a model's config.json say about it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pkv_lint.prompt.errors import InputError

CONTENT_FORMATS = ("auto", "string", "openai")
HASH_ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
SCHEDULING_POLICIES = ("fcfs", "priority")


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is known of the server. The defaults stand for "nothing was said" and refuse nothing: any model name, no
    length limit, every tool choice, the request's own chat template. With a `vllm serve` line (`stated`), vLLM's
    defaults hold.

    `served_model_names` are the names a request may ask for, first the base model's, then the LoRA adapters'; None
    means any; `adapters` are the latter alone. `max_model_len` is in tokens; None means not stated (vLLM then takes it
    from config.json) or `auto`.
    `tool_parser` tells whether a tool call parser is configured, `tool_call_parser` which one when that was said.
    `chat_template` is as given: a file path, a built-in name or the template itself. `num_gpu_blocks_override` counts
    as vLLM does (block 0 is the null block), `kv_cache_memory_bytes` are bytes per GPU. `ignored` holds the flags
    (and `VLLM_…` variables) that were given but change nothing here, `ignored_values` what those with a value were set
    to.
    """

    stated: bool = False
    model: str | None = None
    tokenizer: str | None = None
    tokenizer_mode: str = "auto"
    revision: str | None = None
    tokenizer_revision: str | None = None
    trust_remote_code: bool = False
    hf_overrides: Mapping[str, Any] = field(default_factory=dict)
    served_model_names: tuple[str, ...] | None = None
    adapters: tuple[str, ...] = ()
    chat_template: str | None = None
    chat_template_content_format: str = "auto"
    default_chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    cohere_format: str = "cmd4"
    reasoning_effort_map: Mapping[str, str] = field(default_factory=dict)
    anthropic_disabled_thinking_effort: str = "auto"
    exclude_tools_when_tool_choice_none: bool = False
    enable_auto_tool_choice: bool = True
    tool_parser: bool = True
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    trust_request_chat_template: bool = True
    trust_request_mm_kwargs: bool = True
    interleave_mm_strings: bool = False
    max_model_len: int | None = None
    dtype: str = "auto"

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    block_size: int | None = None
    num_gpu_blocks_override: int | None = None
    kv_cache_memory_bytes: int | None = None
    kv_cache_dtype: str = "auto"
    enable_prefix_caching: bool = True
    prefix_caching_hash_algo: str = "sha256"
    prefix_match_unit: int | None = None
    prefix_cache_retention_interval: int | None = 0
    disable_hybrid_kv_cache_manager: bool = False
    disable_sliding_window: bool = False
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    max_num_partial_prefills: int | None = None
    long_prefill_token_threshold: int = 0
    scheduling_policy: str = "fcfs"
    async_scheduling: bool = True
    watermark: float = 0.0
    scheduler_reserve_full_isl: bool | None = None

    python_hash_seed: str | None = None
    system_start_date: str | None = None
    harmony_system_instructions: bool = False

    ignored: tuple[str, ...] = ()
    ignored_values: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_vllm_args(cls, text: str | Sequence[str] | None) -> Deployment:
        """The deployment of a `vllm serve MODEL --flag value …` line, as text or already split; None: nothing is known.

        `python -m vllm.entrypoints…`, `docker run … vllm/vllm-openai`, the bare flags, `NAME=value` in front and `\\`
        line ends are understood as well. The flags are read as vLLM's own parser reads them
        (`utils/argparse_utils.py`): underscores for dashes, `--flag=value`, `--no-flag`, `--json-flag.key value`, the
        last one wins. Raises InputError for a flag that vLLM would refuse.
        """
        if text is None:
            return cls()
        return _build(_Line.read(_split(text) if isinstance(text, str) else list(text)))

    @property
    def name(self) -> str:
        """What the server calls its base model."""
        return (self.served_model_names or (self.model or "the model",))[0]

    def adapter(self, name: str | None) -> str:
        """What sets the KV of requests for this model apart: the name of a LoRA adapter, nothing for the base model
        under any of its names. Where the names are not known every name is taken for a model of its own."""
        return "" if not name or (self.served_model_names is not None and name not in self.adapters) else name

    def serves(self, name: str | None) -> bool:
        """Whether a request for `name` is answered (vLLM answers a missing or empty name with the base model)."""
        return not name or self.served_model_names is None or name in self.served_model_names


def _plain(value: str, flag: str) -> str:
    return value


def _optional(value: str, flag: str) -> str | None:
    # arg_utils.optional_type: an empty value or "None" unsets.
    return None if value in ("", "None") else value


def _choice(*allowed: str) -> Callable[[str, str], str]:
    def convert(value: str, flag: str) -> str:
        if value not in allowed:
            raise InputError(f"{flag} must be one of {', '.join(allowed)}, not {_shown(value)}")
        return value

    return convert


def _integer(value: str, flag: str) -> int | None:
    if value in ("", "None"):
        return None
    try:
        return int(value)
    except ValueError:
        raise InputError(f"{flag} needs a whole number, not {_shown(value)}") from None


_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def human_integer(text: str) -> int:
    """argparse_utils.human_readable_int: 1k is 1000, 1K is 1024, 25.6k is 25600. Raises ValueError."""
    text = text.strip()
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", text):
        number, suffix = found.groups()
        return int(float(number) * _DECIMAL[suffix]) if suffix in _DECIMAL else int(number) * _BINARY[suffix]
    return int(text)


def _human(value: str, flag: str) -> int | None:
    if value in ("", "None"):
        return None
    try:
        return human_integer(value)
    except (ValueError, OverflowError):
        raise InputError(f"{flag} needs a number such as 8192, 8k (8000) or 8K (8192), not {_shown(value)}") from None


def _gpus(value: str, flag: str) -> int:
    number = _integer(value, flag)
    if number is None or number < 1:
        raise InputError(f"{flag} must be at least 1, not {_shown(value)}")
    return number


def _share(value: str, flag: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0.0 <= share < 1.0:
        raise InputError(f"{flag} must be at least 0 and below 1, not {_shown(value)}")
    return share


def _length(value: str, flag: str) -> int | None:
    if value.strip().lower() in ("-1", "auto"):
        return None
    return _human(value, flag)


def _object(value: str, flag: str) -> dict[str, Any]:
    if value in ("", "None"):
        return {}
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{flag} is not valid JSON ({_reason(error)}): {_shown(value)}") from None
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        raise InputError(f"{flag} needs a JSON object, not {_shown(value)}")
    return parsed


def _names(value: str, flag: str) -> dict[str, str]:
    parsed = _object(value, flag)
    for key, name in parsed.items():
        if not isinstance(name, str):
            raise InputError(f"{flag} must map names to names, not {key} to {_shown(json.dumps(name))}")
    return parsed


def _reason(error: Exception) -> str:
    return f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else "nested too deeply"


def _shown(value: str) -> str:
    return repr(value if len(value) <= 60 else value[:57] + "...")


def _adapters(values: list[str], flag: str) -> tuple[str, ...]:
    """Names of LoRA adapters: `name=path`, a JSON object, or a JSON list of them (cli_args.LoRAParserAction)."""
    names: list[str] = []
    for value in values:
        if not value.lstrip().startswith(("{", "[")):
            name, equals, _ = value.partition("=")
            if not equals:
                raise InputError(f"{flag} needs name=path or JSON, not {_shown(value)}")
            names.append(name)
            continue
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{flag} is not valid JSON ({_reason(error)}): {_shown(value)}") from None
        for entry in parsed if isinstance(parsed, list) else [parsed]:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise InputError(f"{flag} needs objects with a name and a path, not {_shown(value)}")
            names.append(entry["name"])
    return tuple(names)


# Flags with one value that are honoured: field of Deployment and reader of the value.
_VALUES: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "--model": ("model", _plain),
    "--tokenizer": ("tokenizer", _optional),
    "--tokenizer-mode": ("tokenizer_mode", _plain),
    "--revision": ("revision", _optional),
    "--tokenizer-revision": ("tokenizer_revision", _optional),
    "--hf-overrides": ("hf_overrides", _object),
    "--chat-template": ("chat_template", _optional),
    "--chat-template-content-format": ("chat_template_content_format", _choice(*CONTENT_FORMATS)),
    "--default-chat-template-kwargs": ("default_chat_template_kwargs", _object),
    "--cohere-format": ("cohere_format", _plain),
    "--reasoning-effort-map": ("reasoning_effort_map", _names),
    "--anthropic-disabled-thinking-effort": ("anthropic_disabled_thinking_effort", _choice("auto", "none", "low")),
    "--tool-call-parser": ("tool_call_parser", _optional),
    "--reasoning-parser": ("reasoning_parser", _optional),
    "--max-model-len": ("max_model_len", _length),
    "--dtype": ("dtype", _choice("auto", "half", "float16", "bfloat16", "float", "float32")),
    "--tensor-parallel-size": ("tensor_parallel_size", _gpus),
    "--pipeline-parallel-size": ("pipeline_parallel_size", _gpus),
    "--block-size": ("block_size", _integer),
    "--num-gpu-blocks-override": ("num_gpu_blocks_override", _integer),
    "--kv-cache-memory-bytes": ("kv_cache_memory_bytes", _human),
    "--kv-cache-dtype": ("kv_cache_dtype", _plain),
    "--prefix-caching-hash-algo": ("prefix_caching_hash_algo", _choice(*HASH_ALGORITHMS)),
    "--prefix-match-unit": ("prefix_match_unit", _integer),
    "--prefix-cache-retention-interval": ("prefix_cache_retention_interval", _integer),
    "--max-num-batched-tokens": ("max_num_batched_tokens", _human),
    "--max-num-seqs": ("max_num_seqs", _integer),
    "--max-num-partial-prefills": ("max_num_partial_prefills", _integer),
    "--long-prefill-token-threshold": ("long_prefill_token_threshold", _integer),
    "--scheduling-policy": ("scheduling_policy", _choice(*SCHEDULING_POLICIES)),
    "--watermark": ("watermark", _share),
}

_SHORT = {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size"}

# Honoured switches; `--no-…` turns each off.
_SWITCHES = {
    "--trust-remote-code": "trust_remote_code",
    "--exclude-tools-when-tool-choice-none": "exclude_tools_when_tool_choice_none",
    "--enable-auto-tool-choice": "enable_auto_tool_choice",
    "--trust-request-chat-template": "trust_request_chat_template",
    "--trust-request-mm-kwargs": "trust_request_mm_kwargs",
    "--interleave-mm-strings": "interleave_mm_strings",
    "--enable-prefix-caching": "enable_prefix_caching",
    "--disable-hybrid-kv-cache-manager": "disable_hybrid_kv_cache_manager",
    "--disable-sliding-window": "disable_sliding_window",
    "--async-scheduling": "async_scheduling",
    "--scheduler-reserve-full-isl": "scheduler_reserve_full_isl",
}

# Flags that take every value up to the next flag (argparse's nargs="+").
_LISTS = frozenset(
    {
        "--served-model-name",
        "--lora-modules",
        "--allowed-media-domains",
        "--sleep-preserve-parameter-names",
        "--logits-processors",
        "--ignore-patterns",
        "--numa-bind-nodes",
        "--numa-bind-cpus",
        "--kv-cache-dtype-skip-layers",
        "--cpu-offload-params",
        "--offload-params",
        "--lora-target-modules",
        "--collect-detailed-traces",
        "--cudagraph-capture-sizes",
        "--api-key",
    }
)

# Switches that are not honoured: without them `--enforce-eager MODEL` would lose MODEL.
_OTHER_SWITCH = re.compile(
    r"""--(?:enable|disable|no|use)-(?!access-log-for-endpoints).+ | -O.+ | -dph | -dpe | -dpm | -ep
    | --(?: enforce-eager | headless | grpc | numa-bind | language-model-only | tokens-only | mm-encoder-only
      | allow-deprecated-quantization | allow-credentials | return-sampling-mask | return-tokens-as-token-ids
      | skip-tokenizer-init | skip-mm-profiling | sleep-mode-offload-cudagraph | ray-workers-use-nsight
      | data-parallel-(?:hybrid|external|multi-port-external)-lb | dcp-q-replicate | mm-device-do-normalize
      | kv-sharing-fast-prefill | swa-bounded-replay | fully-sharded-loras | specialize-active-lora
      | kv-cache-metrics | cudagraph-metrics | jit-monitor-verbose | long-prefill-token-threshold-adaptive
      | aggregate-engine-logging | fail-on-environ-validation
      | cohere-is-reasoning-model | log-error-stack )""",
    re.VERBOSE,
)
_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_IMAGE = re.compile(r"(?:.*/)?vllm-openai(?:[:@].*)?")  # docker run … vllm/vllm-openai:latest --model …
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")

_VARIABLES = {
    "PYTHONHASHSEED": "python_hash_seed",
    "VLLM_SYSTEM_START_DATE": "system_start_date",
    "VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS": "harmony_system_instructions",
}


def _split(text: str) -> list[str]:
    """Words of a shell line up to the first operator (`|`, `&`, `;`, a redirection)."""
    # A line end that a space stands in front of is meant as a continuation too.
    lexer = shlex.shlex(re.sub(r"\\[ \t\r]*(?:\n|$)", " ", text), posix=True, punctuation_chars=";|&<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        for word in lexer:
            if word.strip(";|&<>") == "" and word:
                if words and words[-1] in "12" and re.search(rf"\s{words[-1]}{re.escape(word)}", text):
                    words.pop()  # `2>&1` comes as three words
                break
            words.append(word)
    except ValueError as error:
        raise InputError(f"the vLLM arguments end inside quotes ({str(error).lower()})") from None
    return words


def _is_flag(word: str) -> bool:
    # argparse._parse_optional: a lone dash, negative numbers and anything with a space are values.
    return (
        len(word) > 1 and word[0] == "-" and not _NEGATIVE_NUMBER.fullmatch(word) and " " not in word.partition("=")[0]
    )


@dataclass(slots=True)
class _Line:
    """A command line taken apart: one value per flag (the last), in the order vLLM's parser would see them."""

    variables: dict[str, str] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    switches: dict[str, bool] = field(default_factory=dict)
    nested: dict[str, dict[str, Any]] = field(default_factory=dict)
    ignored: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def read(cls, words: list[str]) -> _Line:
        line = cls()
        words = line._read_command(words)
        at = 0
        while at < len(words):
            if not _is_flag(words[at]):
                line.positional.append(words[at])
                at += 1
                continue
            at = line._read_flag(words, at)
        # `vllm serve` moves --model to the front, so beside it there is room for no other word.
        models = [line.values["--model"], *line.positional] if "--model" in line.values else line.positional
        if len(models) > 1:
            raise InputError(f"unexpected argument {_shown(models[1])} in the vLLM arguments")
        if models:
            line.values["--model"] = models[0]
        # FlexibleArgumentParser.parse_args puts the collected dotted values last, so they win over the flag's own JSON.
        for flag, nested in line.nested.items():
            if flag in _VALUES:
                line.values[flag] = json.dumps(nested)
            else:
                line.ignored[flag] = json.dumps(nested)
        return line

    def _read_command(self, words: list[str]) -> list[str]:
        """Takes assignments and the command off the front, and drops what stands in front of it (env, nohup, …)."""
        start = 0
        for at, word in enumerate(words):
            following = words[at + 1 : at + 3]
            if word.rpartition("/")[2] == "vllm" and following[:1] == ["serve"]:
                start = at + 2
            elif word.rpartition("/")[2] == "vllm" and following == ["launch", "render"]:
                start = at + 3
            elif word == "-m" and following and following[0].startswith("vllm.entrypoints"):
                start = at + 2
            elif _IMAGE.fullmatch(word):
                start = at + 1 + (following[:1] == ["serve"])
            else:
                continue
            break
        else:
            while start < len(words) and _ASSIGNMENT.match(words[start]):
                start += 1
        for word in words[:start]:
            if _ASSIGNMENT.match(word):
                name, _, value = word.partition("=")
                self.variables[name] = value
        return words[start:]

    def _read_flag(self, words: list[str], at: int) -> int:
        word = words[at]
        name, equals, inline = word.partition("=")
        value = inline if equals else None
        if word.startswith("--"):
            head, dot, keys = name.partition(".")
            name = head.replace("_", "-") + dot + keys
        name = _SHORT.get(name, name)
        at += 1
        if "." in name:
            if value is None:
                if at == len(words):
                    raise InputError(f"{name} needs a value")
                value, at = words[at], at + 1  # whatever it looks like
            self._nest(name, value)
        elif name in _LISTS:
            found = [] if value is None else [value]
            while value is None and at < len(words) and not _is_flag(words[at]):
                found.append(words[at])
                at += 1
            if not found:
                raise InputError(f"{name} needs a value")
            self.lists[name] = found
            if name not in ("--served-model-name", "--lora-modules"):
                self.ignored[name] = " ".join(found)
        elif name in _SWITCHES or name.replace("--no-", "--", 1) in _SWITCHES:
            if value is not None:
                raise InputError(f"{name} takes no value (use {name} or {_opposite(name)})")
            self.switches[name if name in _SWITCHES else _opposite(name)] = name in _SWITCHES
        elif name in _VALUES:
            if value is None:
                value, at = self._next(name, words, at), at + 1
            self.values[name] = value
        else:
            if value is None and not _OTHER_SWITCH.fullmatch(name) and at < len(words) and not _is_flag(words[at]):
                value, at = words[at], at + 1
            self.ignored[name] = value
        return at

    def _next(self, flag: str, words: list[str], at: int) -> str:
        if at == len(words) or _is_flag(words[at]):
            raise InputError(f"{flag} needs a value")
        return words[at]

    def _nest(self, name: str, text: str) -> None:
        """`--flag.key.key value` and `--flag.key+ a,b`, merged as FlexibleArgumentParser does."""
        flag, *keys = name.removesuffix("+").split(".")
        value: Any = text
        if name.endswith("+"):
            value = text.split(",")
        else:
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                try:
                    value = human_integer(text)
                except (ValueError, OverflowError):
                    value = text
        target: Any = self.nested.setdefault(flag, {})
        for key in keys[:-1]:
            if not isinstance(target.get(key), dict):
                target[key] = {}
            target = target[key]
        old = target.get(keys[-1])
        if isinstance(old, list) and isinstance(value, list):
            value = old + value
        elif isinstance(old, dict) and isinstance(value, dict):
            value = _merged(old, value)
        target[keys[-1]] = value


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    out = dict(old)
    for key, value in new.items():
        before = out.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            value = _merged(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            value = before + value
        out[key] = value
    return out


def _opposite(flag: str) -> str:
    return "--" + flag.removeprefix("--no-") if flag.startswith("--no-") else "--no-" + flag.removeprefix("--")


def _build(line: _Line) -> Deployment:
    found: dict[str, Any] = {
        # vLLM's defaults where they differ from "nothing was said".
        "stated": True,
        "enable_auto_tool_choice": False,
        "trust_request_chat_template": False,
        "trust_request_mm_kwargs": False,
    }
    for flag, value in line.values.items():
        name, convert = _VALUES[flag]
        found[name] = convert(value, flag)
    for flag, on in line.switches.items():
        found[_SWITCHES[flag]] = on
    found["tool_parser"] = found.get("tool_call_parser") is not None
    if found["enable_auto_tool_choice"] and not found["tool_parser"]:
        raise InputError("--enable-auto-tool-choice needs --tool-call-parser (vLLM refuses to start without it)")
    for name in ("block_size", "num_gpu_blocks_override", "max_model_len", "max_num_batched_tokens", "max_num_seqs"):
        if (number := found.get(name)) is not None and number < 1:
            raise InputError(f"--{name.replace('_', '-')} must be at least 1, not {number}")
    names = line.lists.get("--served-model-name")
    if names is None and found.get("model") is not None:
        names = [found["model"]]
    if names is not None:
        found["adapters"] = _adapters(line.lists.get("--lora-modules", []), "--lora-modules")
        found["served_model_names"] = (*names, *found["adapters"])
    ignored = dict(line.ignored)
    for variable, value in line.variables.items():
        if variable == "VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS":
            if not re.fullmatch(r"\s*[+-]?\d+\s*", value):
                raise InputError(f"{variable} must be 0 or 1, not {_shown(value)}")
            found[_VARIABLES[variable]] = int(value) != 0
        elif variable in _VARIABLES:
            found[_VARIABLES[variable]] = value
        elif variable.startswith("VLLM_"):
            ignored[variable] = value
    given = {name: value for name, value in ignored.items() if value is not None}
    return Deployment(**found, ignored=tuple(ignored), ignored_values=given)
