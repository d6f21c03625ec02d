"""What a `vllm serve` line says."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pkv_lint.prompt import deployment as module
from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import InputError


def read(line: str) -> Deployment:
    return Deployment.from_vllm_args(line)


def field(line: str, name: str) -> Any:
    deployment = read(line)
    assert deployment.ignored == ()
    return getattr(deployment, name)


# What is known without a line, and what vLLM does without a flag.


def test_nothing_said_refuses_nothing() -> None:
    deployment = Deployment.from_vllm_args(None)
    assert deployment == Deployment()
    assert deployment.serves("anything") and deployment.serves(None)
    assert deployment.max_model_len is None
    assert deployment.enable_auto_tool_choice and deployment.tool_parser
    assert deployment.trust_request_chat_template
    assert not deployment.stated


def test_vllms_defaults_hold_with_a_line() -> None:
    deployment = read("vllm serve m")
    assert deployment.stated
    assert not deployment.enable_auto_tool_choice and not deployment.tool_parser
    assert not deployment.trust_request_chat_template and not deployment.trust_request_mm_kwargs
    assert deployment.enable_prefix_caching and deployment.async_scheduling
    assert deployment.prefix_caching_hash_algo == "sha256"


def test_it_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Deployment().model = "m"  # type: ignore[misc]


# How the line may look.


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve org/m --block-size 32 --revision r",
        "vllm serve --block-size 32 org/m --revision r",
        "vllm serve --block-size=32 --revision=r org/m",
        "vllm serve --block_size 32 --revision r --model org/m",
        "vllm serve org/m --block-size 64 --revision x --block-size 32 --revision r",
        "  vllm serve org/m \\\n  --block-size 32 \\\r\n  --revision r \\\n",
        "vllm serve org/m \\  \n --block-size 32 --revision r",
        "vllm serve org/m\n  --block-size 32\n  --revision r",
        "/opt/venv/bin/vllm serve org/m --block-size 32 --revision r",
        "CUDA_VISIBLE_DEVICES=0,1 nohup uv run vllm serve org/m --block-size 32 --revision r > log.txt 2>&1 &",
        "vllm serve org/m --block-size 32 --revision r 2>&1 | tee log",
        "vllm serve org/m --block-size 32 --revision r; echo done",
        "vllm launch render org/m --block-size 32 --revision r",
        "python3 -m vllm.entrypoints.openai.api_server --model org/m --block-size 32 --revision r",
        "python -m vllm.entrypoints.launchers.render.entry --model 'org/m' --block-size '32' --revision \"r\"",
        "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.33.0 --model org/m --block-size 32 --revision r",
        "podman run docker.io/vllm/vllm-openai serve org/m --block-size 32 --revision r",
        "--model org/m --block-size 32 --revision r",
        "org/m --block-size 32 --revision r",
    ],
)
def test_lines(line: str) -> None:
    deployment = read(line)
    assert (deployment.model, deployment.block_size, deployment.revision) == ("org/m", 32, "r")
    assert deployment.ignored == ()


def test_words_that_are_split_already() -> None:
    words = ["--default-chat-template-kwargs", '{"a": "b c"}', "--block-size", "8"]
    deployment = Deployment.from_vllm_args(words)
    assert deployment.default_chat_template_kwargs == {"a": "b c"}
    assert deployment.block_size == 8


def test_quotes_are_the_shells() -> None:
    literal = "{% for m in messages %}<|im_start|>{{ m.content }}\n{% endfor %} | x > y"
    assert field(f"vllm serve m --chat-template '{literal}'", "chat_template") == literal
    line = 'vllm serve m --default-chat-template-kwargs "{\\"a\\": [1, \\"x;y\\"]}"'
    assert field(line, "default_chat_template_kwargs") == {"a": [1, "x;y"]}


def test_a_number_in_front_of_a_redirection_stays() -> None:
    assert read("vllm serve m --block-size 32 --max-num-seqs 2 > log").max_num_seqs == 2
    assert read("vllm serve m --block-size 32 --max-num-seqs 2 2> log").max_num_seqs == 2


# Values.


@pytest.mark.parametrize(
    ("value", "length"),
    [
        ("131072", 131072),
        ("128k", 128_000),
        ("128K", 131_072),
        ("25.6k", 25_600),
        ("1m", 1_000_000),
        ("1M", 1_048_576),
        ("-1", None),
        ("auto", None),
        ("AUTO", None),
        ("' 32k '", 32_000),
    ],
)
def test_lengths(value: str, length: int | None) -> None:
    assert field(f"vllm serve m --max-model-len {value}", "max_model_len") == length


@pytest.mark.parametrize(
    ("flag", "name", "value"),
    [
        ("--tokenizer t", "tokenizer", "t"),
        ("--tokenizer None", "tokenizer", None),
        ("--tokenizer-mode mistral", "tokenizer_mode", "mistral"),
        ("--tokenizer-revision r", "tokenizer_revision", "r"),
        ("--trust-remote-code", "trust_remote_code", True),
        ("--hf-overrides '{\"a\": 1}'", "hf_overrides", {"a": 1}),
        ("--chat-template ./t.jinja", "chat_template", "./t.jinja"),
        ("--chat-template-content-format openai", "chat_template_content_format", "openai"),
        ("--default-chat-template-kwargs '{\"a\": null}'", "default_chat_template_kwargs", {"a": None}),
        ("--default-chat-template-kwargs null", "default_chat_template_kwargs", {}),
        ("--cohere-format cmd3", "cohere_format", "cmd3"),
        ('--reasoning-effort-map \'{"high": "low"}\'', "reasoning_effort_map", {"high": "low"}),
        ("--anthropic-disabled-thinking-effort low", "anthropic_disabled_thinking_effort", "low"),
        ("--exclude-tools-when-tool-choice-none", "exclude_tools_when_tool_choice_none", True),
        ("--reasoning-parser qwen3", "reasoning_parser", "qwen3"),
        ("--trust-request-chat-template", "trust_request_chat_template", True),
        ("--trust-request-mm-kwargs", "trust_request_mm_kwargs", True),
        ("--interleave-mm-strings", "interleave_mm_strings", True),
        ("--num-gpu-blocks-override 1000", "num_gpu_blocks_override", 1000),
        ("--kv-cache-memory-bytes 40G", "kv_cache_memory_bytes", 40 * 2**30),
        ("--kv-cache-dtype fp8", "kv_cache_dtype", "fp8"),
        ("--enable-prefix-caching", "enable_prefix_caching", True),
        ("--no-enable-prefix-caching", "enable_prefix_caching", False),
        ("--no_enable_prefix_caching", "enable_prefix_caching", False),
        ("--no-enable-prefix-caching --enable-prefix-caching", "enable_prefix_caching", True),
        ("--prefix-caching-hash-algo xxhash_cbor", "prefix_caching_hash_algo", "xxhash_cbor"),
        ("--prefix-match-unit 16", "prefix_match_unit", 16),
        ("--prefix-cache-retention-interval None", "prefix_cache_retention_interval", None),
        ("--disable-hybrid-kv-cache-manager", "disable_hybrid_kv_cache_manager", True),
        ("--disable-sliding-window", "disable_sliding_window", True),
        ("--max-num-batched-tokens 8k", "max_num_batched_tokens", 8000),
        ("--max-num-seqs 256", "max_num_seqs", 256),
        ("--dtype half", "dtype", "half"),
        ("-tp 2 --tensor-parallel-size 8", "tensor_parallel_size", 8),
        ("--pipeline_parallel_size=2 -pp 4", "pipeline_parallel_size", 4),
        ("--max-num-partial-prefills 2", "max_num_partial_prefills", 2),
        ("--long-prefill-token-threshold 2048", "long_prefill_token_threshold", 2048),
        ("--scheduling-policy priority", "scheduling_policy", "priority"),
        ("--no-async-scheduling", "async_scheduling", False),
        ("--watermark 0.05", "watermark", 0.05),
        ("--no-scheduler-reserve-full-isl", "scheduler_reserve_full_isl", False),
        ("--scheduler-reserve-full-isl", "scheduler_reserve_full_isl", True),
    ],
)
def test_flags(flag: str, name: str, value: Any) -> None:
    assert field(f"vllm serve m {flag}", name) == value


def test_every_honoured_flag_is_documented(request: pytest.FixtureRequest) -> None:
    honoured = {*module._VALUES, *module._SWITCHES, *module._VARIABLES, "--served-model-name", "--lora-modules"}
    page = (request.config.rootpath / "docs" / "deployment.md").read_text()
    assert set(re.findall(r"^\| `([^` ]+)", page, re.MULTILINE)) == honoured


def test_keys_of_json_flags_may_stand_alone() -> None:
    name = "default_chat_template_kwargs"
    assert field("vllm serve m --default-chat-template-kwargs.enable_thinking false", name) == {
        "enable_thinking": False
    }
    assert field("vllm serve m --default_chat_template_kwargs.a_b.c-d=1k", name) == {"a_b": {"c-d": 1000}}
    line = "vllm serve m --default-chat-template-kwargs.a 'x y' --default-chat-template-kwargs.b.c 1"
    assert field(line + " --default-chat-template-kwargs.b.d 2.5", name) == {"a": "x y", "b": {"c": 1, "d": 2.5}}
    line = "vllm serve m --default-chat-template-kwargs.l+ a,b --default-chat-template-kwargs.l+=c"
    assert field(line, name) == {"l": ["a", "b", "c"]}
    line = 'vllm serve m --default-chat-template-kwargs.a \'{"b": {"c": 1}}\' --default-chat-template-kwargs.a.b.d 2'
    assert field(line, name) == {"a": {"b": {"c": 1, "d": 2}}}


def test_keys_that_stand_alone_win_over_the_flag_itself() -> None:
    whole, key = "--default-chat-template-kwargs '{\"a\": 1}'", "--default-chat-template-kwargs.b 2"
    for line in (f"{whole} {key}", f"{key} {whole}"):
        assert field(f"vllm serve m {line}", "default_chat_template_kwargs") == {"b": 2}


# Names, tools, variables.


def test_adapters_are_apart_from_names_of_the_base_model() -> None:
    deployment = read("vllm serve org/m --served-model-name a b --lora-modules x=path")
    assert [deployment.adapter(name) for name in ("a", "b", "x", "", None)] == ["", "", "x", "", ""]
    assert read("--block-size 16").adapter("a") == "a"


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("vllm serve org/m", ("org/m",)),
        ("vllm serve org/m --served-model-name a", ("a",)),
        ("vllm serve org/m --served-model-name a b --block-size 16", ("a", "b")),
        ("vllm serve org/m --served-model-name=a", ("a",)),
        ("vllm serve org/m --served-model-name a --served-model-name b", ("b",)),
        ("vllm serve org/m --enable-lora --lora-modules x=path y=path", ("org/m", "x", "y")),
        ('vllm serve m --lora-modules \'{"name": "x", "path": "p"}\'', ("m", "x")),
        ('vllm serve m --lora-modules \'[{"name": "x"}, {"name": "y"}]\'', ("m", "x", "y")),
        ("--block-size 16", None),
    ],
)
def test_served_names(line: str, names: tuple[str, ...] | None) -> None:
    deployment = read(line)
    assert deployment.served_model_names == names
    assert deployment.serves("nope") == (names is None)
    assert all(deployment.serves(name) for name in (*(names or ()), "", None))


@pytest.mark.parametrize(
    ("flags", "auto", "parser"),
    [
        ("", False, False),
        ("--tool-call-parser hermes", False, True),
        ("--enable-auto-tool-choice --tool-call-parser hermes", True, True),
        ("--enable-auto-tool-choice --no-enable-auto-tool-choice", False, False),
    ],
)
def test_tools(flags: str, auto: bool, parser: bool) -> None:
    deployment = read(f"vllm serve m {flags}")
    assert (deployment.enable_auto_tool_choice, deployment.tool_parser) == (auto, parser)
    assert deployment.tool_call_parser == ("hermes" if parser else None)


def test_variables() -> None:
    deployment = read(
        "PYTHONHASHSEED=0 VLLM_SYSTEM_START_DATE=2026-01-02 VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS=1 "
        "VLLM_USE_RUST_FRONTEND=1 HF_HOME='/a b' vllm serve m"
    )
    assert deployment.python_hash_seed == "0"
    assert deployment.system_start_date == "2026-01-02"
    assert deployment.harmony_system_instructions
    assert deployment.ignored == ("VLLM_USE_RUST_FRONTEND",)
    assert read("env PYTHONHASHSEED=7 vllm serve m").python_hash_seed == "7"
    assert read("docker run -e PYTHONHASHSEED=7 vllm/vllm-openai --model m").python_hash_seed == "7"
    assert read("PYTHONHASHSEED=7 --model m").python_hash_seed == "7"
    assert not read("VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS=0 vllm serve m").harmony_system_instructions


# Flags that change nothing here.


@pytest.mark.parametrize(
    ("flags", "ignored"),
    [
        ("--port 8000 --host 0.0.0.0", ("--port", "--host")),
        ("--port=8000 --enforce-eager", ("--port", "--enforce-eager")),
        ("--port 8000 --port 8001", ("--port",)),
        ("-ep -dp=4 -O3", ("-ep", "-dp", "-O3")),
        ("--enable-expert-parallel --disable-log-requests --use-v2", None),
        ("--no-enable-log-requests", ("--no-enable-log-requests",)),
        ("--disable-access-log-for-endpoints /health,/metrics", ("--disable-access-log-for-endpoints",)),
        ("--api-key a b --seed 1", ("--api-key", "--seed")),
        ("-cc.mode 3 -cc.pass_config.x=true", ("-cc",)),
        ("--compilation-config.mode 3 --compilation_config '{}'", ("--compilation-config",)),
        ("--gpu_memory_utilization 0.9", ("--gpu-memory-utilization",)),
        ("--cpu-offload-gb -1 --a-flag-of-tomorrow x", ("--cpu-offload-gb", "--a-flag-of-tomorrow")),
        ("--hf-token", ("--hf-token",)),
    ],
)
def test_other_flags_are_named_once_and_take_nothing_away(flags: str, ignored: tuple[str, ...] | None) -> None:
    for line in (f"vllm serve m {flags} --block-size 32", f"vllm serve --block-size 32 --revision r {flags} --model m"):
        deployment = read(line)
        assert (deployment.model, deployment.block_size) == ("m", 32)
        if ignored is not None:
            assert sorted(deployment.ignored) == sorted(ignored)


@pytest.mark.parametrize("switch", ["--enforce-eager", "--enable-lora", "--grpc", "-ep", "--kv-cache-metrics", "-O2"])
def test_a_switch_does_not_take_the_model(switch: str) -> None:
    assert read(f"vllm serve {switch} m").model == "m"


# What vLLM would refuse.


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("vllm serve m --block-size", "--block-size needs a value"),
        ("vllm serve m --block-size --revision r", "--block-size needs a value"),
        ("vllm serve m --block_size x", "--block-size needs a whole number, not 'x'"),
        ("vllm serve m --block-size 0", "--block-size must be at least 1"),
        ("vllm serve m --block-size 1.5", "--block-size needs a whole number"),
        ("vllm serve m --max-model-len 1.5K", "--max-model-len needs a number"),
        ("vllm serve m --max-model-len many", "--max-model-len needs a number"),
        ("vllm serve m --max-model-len -5", "--max-model-len must be at least 1"),
        ("vllm serve m --default-chat-template-kwargs {a", "--default-chat-template-kwargs is not valid JSON"),
        ("vllm serve m --default-chat-template-kwargs '[1]'", "--default-chat-template-kwargs needs a JSON object"),
        ("vllm serve m --default-chat-template-kwargs.a", "--default-chat-template-kwargs.a needs a value"),
        ("vllm serve m --reasoning-effort-map '{\"a\": 1}'", "--reasoning-effort-map must map names to names"),
        ("vllm serve m --hf-overrides f", "--hf-overrides is not valid JSON"),
        ("vllm serve m --chat-template-content-format xml", "--chat-template-content-format must be one of auto, "),
        ("vllm serve m --prefix-caching-hash-algo md5", "--prefix-caching-hash-algo must be one of sha256, "),
        ("vllm serve m --scheduling-policy lifo", "--scheduling-policy must be one of fcfs, priority"),
        ("vllm serve m --enable-auto-tool-choice", "--enable-auto-tool-choice needs --tool-call-parser"),
        ("vllm serve m --enable-prefix-caching=true", "--enable-prefix-caching takes no value"),
        ("vllm serve m --served-model-name", "--served-model-name needs a value"),
        ("vllm serve m --lora-modules x", "--lora-modules needs name=path or JSON"),
        ("vllm serve m --lora-modules {x", "--lora-modules is not valid JSON"),
        ("vllm serve m --lora-modules '{\"path\": 1}'", "--lora-modules needs objects with a name"),
        ("vllm serve m extra", "unexpected argument 'extra'"),
        ("vllm serve m --model m", "unexpected argument 'm'"),
        ("vlm serve m", "unexpected argument 'serve'"),
        ("vllm serve m --chat-template '{{", "the vLLM arguments end inside quotes"),
        (
            "VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS=yes vllm serve m",
            "VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS must be",
        ),
        ("vllm serve m --default-chat-template-kwargs " + "[" * 100_000, "nested too deeply"),
        ("vllm serve m --block-size " + "9" * 5000, "--block-size needs a whole number"),
    ],
)
def test_malformed_values_are_one_clear_line_with_the_flag(line: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(line)
    text = str(caught.value)
    assert message in text and "\n" not in text and len(text) < 200


# Whatever is given.


@given(st.lists(st.text(st.characters(exclude_characters="\0"), max_size=8), max_size=6))
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    for prefix in ([], ["vllm", "serve", "m"], ["--default-chat-template-kwargs.a"]):
        try:
            Deployment.from_vllm_args([*prefix, *words])
            Deployment.from_vllm_args(" ".join([*prefix, *words]))
        except InputError as error:
            assert str(error)


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    )
)
def test_json_values_come_through(value: Any) -> None:
    text = json.dumps({"a": value})
    deployment = Deployment.from_vllm_args(["m", "--default-chat-template-kwargs", text])
    assert deployment.default_chat_template_kwargs == {"a": value}
    assert Deployment.from_vllm_args(["m", "--default-chat-template-kwargs=" + text]) == deployment
    nested = Deployment.from_vllm_args(["m", "--default-chat-template-kwargs.a", json.dumps(value)])
    assert nested == deployment


def test_the_golden_servers_are_read(shared: Path) -> None:
    import gzip

    base = ["m", "--max-model-len", "131072", "--trust-request-chat-template", "--enable-auto-tool-choice"]
    seen = 0
    for file in (shared / "data" / "chat_golden").glob("flags.*.gz"):
        with gzip.open(file, "rt") as lines:
            given_args = json.loads(next(lines))["server_args"]
        deployment = Deployment.from_vllm_args([*base, "--tool-call-parser", "hermes", *given_args])
        assert deployment.ignored == () and deployment.max_model_len == 131072
        seen += 1
    assert seen
