"""What of a deployment the simulator does not model: refused by its name, never approximated."""

from __future__ import annotations

from dataclasses import dataclass

from pkv_lint.options import ServerOptions
from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.model_config import ModelConfig


@dataclass(frozen=True, slots=True)
class Feature:
    """Flags of `vllm serve` that turn something on that changes the figures, and the values that leave it off."""

    name: str
    flags: tuple[str, ...]
    off: tuple[str, ...] = ()


UNMODELLED = (
    Feature("speculative decoding", ("--speculative-config", "-sc", "--spec-method", "--spec-model", "--spec-tokens")),
    Feature("a KV connector", ("--kv-transfer-config",)),
    Feature("KV offloading", ("--kv-offloading-size", "--kv-offloading-backend"), ("0", "0.0")),
    Feature("decode context parallelism", ("--decode-context-parallel-size", "-dcp"), ("1",)),
    Feature("prefill context parallelism", ("--prefill-context-parallel-size", "-pcp"), ("1",)),
    Feature("data parallelism", ("--data-parallel-size", "-dp"), ("1",)),
    Feature("a scheduler of one's own", ("--scheduler-cls",)),
    Feature("Mamba caching", ("--mamba-cache-mode", "--mamba-block-size", "--enable-mamba-shared-prefix-checkpoint")),
    Feature("bounded replay", ("--swa-bounded-replay",)),
    Feature("pooling", ("--runner", "--convert", "--task"), ("auto", "generate", "none")),
    Feature("diffusion decoding", ("--diffusion-config", "-dc")),
)
SCHEDULING = (
    Feature("a limit of active sequences", ("--max-num-active-seqs",)),
    Feature("a limit of scheduled tokens", ("--max-num-scheduled-tokens",)),
    Feature("refusing requests while many wait", ("--max-num-queued-reqs", "--max-num-queued-tokens")),
    Feature("an adaptive threshold of long prompts", ("--long-prefill-token-threshold-adaptive",)),
    Feature("prefill without chunks", ("--no-enable-chunked-prefill",)),
    Feature("an interval between prefills", ("--prefill-schedule-interval",), ("1",)),
    Feature("the limit of adapters in a step", ("--enable-lora",)),
    Feature("a mode with other limits", ("--performance-mode",), ("balanced", "interactivity")),
)
"""What decides about the steps of a server: it matters to the simulated schedule alone."""
UNSET = ("", "None")


def check_deployment(deployment: Deployment, schedule: str) -> None:
    """Raises InputError that names the first flag for something that is not modelled under this schedule."""
    values = deployment.ignored_values
    for feature in (*UNMODELLED, *(SCHEDULING if schedule == "simulated" else ())):
        for flag in feature.flags:
            if flag in deployment.ignored and values.get(flag, "on") not in (*feature.off, *UNSET):
                raise InputError(f"{flag}: {feature.name} is not modelled")
    if deployment.watermark and schedule == "recorded":
        raise InputError("--watermark: a watermark is not modelled at recorded times")
    if schedule == "simulated":
        if deployment.adapters:
            raise InputError("--lora-modules: the limit of adapters in a step is not modelled")
        if deployment.pipeline_parallel_size > 1:
            raise InputError("--pipeline-parallel-size: pipeline parallelism is not modelled in simulated time")
    if deployment.prefix_match_unit is not None:
        raise InputError("--prefix-match-unit: hits inside a block are not modelled")
    if not deployment.enable_prefix_caching:
        raise InputError("--no-enable-prefix-caching: without prefix caching nothing is ever reused")


def check_model(config: ModelConfig, deployment: Deployment) -> None:
    """Raises InputError for a model whose cache is not that of full attention alone."""
    kinds = [
        kind
        for kind in config.unmodelled(deployment)
        if not (deployment.disable_sliding_window and kind == "sliding-window layers")
    ]
    if kinds:
        model = config.model_type or "the model"
        raise InputError(f"{model} has {' and '.join(kinds)}: only the cache of full attention is modelled")


def model_config(server: ServerOptions, deployment: Deployment) -> ModelConfig | None:
    """The config.json of the model that was named, None where there is none. Raises InputError."""
    model, tokenizer = server.model or deployment.model, server.tokenizer or deployment.tokenizer
    if not (model or tokenizer or deployment.hf_overrides):
        return None
    from pkv_lint.prompt.loading import Files

    template = server.chat_template or deployment.chat_template
    return Files.find(model, template, tokenizer, deployment, offline=server.offline).config


def max_model_len(deployment: Deployment, config: ModelConfig | None) -> int | None:
    """The longest sequence that the server takes, in tokens; None where it is not known."""
    if deployment.max_model_len is None and deployment.stated and config is not None:
        return config.max_model_len
    return deployment.max_model_len
