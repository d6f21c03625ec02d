"""An estimate of a step's time from a model's config.json and a GPU's data sheet.

Compute at the GPU's peak rate and memory at its full bandwidth, one after the other, and nothing else: no launch
overhead, no sampling, no communication between GPUs. Real servers are slower; how much, `pkv-verify --calibrate` tells.
"""

from __future__ import annotations

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.model_config import ModelConfig
from pkv_sim.kv_memory import kv_memory
from pkv_sim.timing.gpus import Gpu
from pkv_sim.timing.timing_profile import Coefficients, TimingProfile

DENSE = ("llama", "mistral", "qwen2", "qwen3")
"""Model types whose layers are query, key, value and output projections and a gated MLP of three matrices."""
BYTES_OF_WEIGHT = 2
"""bfloat16 and float16: the rates of the table are those of these formats."""
UNMODELLED = ("--quantization", "-q", "--cpu-offload-gb", "--offload-backend", "--offload-group-size")


def roofline(config: ModelConfig | None, name: str | None, gpu: Gpu, deployment: Deployment) -> TimingProfile:
    """`name` is what the model is called, None: by its type.

    Raises InputError for a model or a deployment that the estimate does not cover.
    """
    instead = "--timing takes what was measured"
    if config is None:
        raise InputError(
            f"--gpu estimates times by a model's config.json, and there is none: name a --model; {instead}"
        )
    sizes = (config.hidden_size, config.intermediate_size, config.vocab_size, config.attention_heads)
    if config.model_type not in DENSE or not all(sizes) or not all(layer.kv_heads for layer in config.layers):
        kind = config.model_type or "the model"
        raise InputError(f"--gpu: {kind} is not estimated, only dense models ({', '.join(DENSE)}); {instead}")
    if config.quantized or deployment.dtype in ("float", "float32"):
        raise InputError(f"--gpu: weights in other formats than 16 bits are not estimated; {instead}")
    for flag in UNMODELLED:
        if flag in deployment.ignored:
            raise InputError(f"{flag}: its effect on times is not estimated; {instead}")
    if deployment.pipeline_parallel_size > 1:
        raise InputError(f"--pipeline-parallel-size: pipeline stages are not estimated; {instead}")
    gpus = deployment.tensor_parallel_size
    flops, bandwidth = gpu.flops * gpus, gpu.bandwidth * gpus
    memory = kv_memory(0, config, deployment)
    layers, output = layer_weights(config), config.hidden_size * config.vocab_size
    query_size = sum(config.attention_heads * layer.width // layer.kv_heads for layer in config.layers)
    return TimingProfile(
        "roofline",
        name or config.model_type,
        f"{gpus} x {gpu.name}" if gpus > 1 else gpu.name,
        Coefficients(
            # All weights are read once.
            step=BYTES_OF_WEIGHT * (layers + output) / bandwidth,
            # A weight is one multiplication and one addition.
            prefill_token=2 * layers / flops,
            # Scores and weighted values are a product of vectors each.
            attention_pair=4 * query_size / flops,
            decode_sequence=2 * (layers + output) / flops,
            # Keys and values are read; each GPU has its heads.
            decode_context=memory.bytes_per_token / gpu.bandwidth,
        ),
    )


def layer_weights(config: ModelConfig) -> int:
    """Numbers in the matrices of all layers: what each token is multiplied with."""
    hidden, found = config.hidden_size, 0
    for layer in config.layers:
        queries = config.attention_heads * layer.width // layer.kv_heads
        found += hidden * (2 * queries + 2 * layer.width) + 3 * hidden * config.intermediate_size
    return found
