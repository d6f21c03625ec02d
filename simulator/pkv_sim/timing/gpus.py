"""What data sheets say of GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from pkv_lint.prompt.errors import InputError


@dataclass(frozen=True, slots=True)
class Gpu:
    """Peak dense bfloat16 operations per second (without the factor 2 of structured sparsity), and the bandwidth of its
    memory in bytes per second; `max_num_batched_tokens` and `max_num_seqs` are what vLLM's server takes on this GPU
    when nothing is said (`EngineArgs.get_batch_defaults`)."""

    name: str
    flops: float
    bandwidth: float
    max_num_batched_tokens: int
    max_num_seqs: int


def _gpu(name: str, teraflops: float, gigabytes_per_second: float, gigabytes: float) -> Gpu:
    if gigabytes > 171:  # 160 GiB
        tokens, sequences = 16_384, 1024
    elif gigabytes > 75 and not name.startswith("A100"):  # 70 GiB
        tokens, sequences = 8192, 1024
    else:
        tokens, sequences = 2048, 256
    return Gpu(name, teraflops * 1e12, gigabytes_per_second * 1e9, tokens, sequences)


# Sources: the vendor's data sheet of each product. Where it prints rates with sparsity only, half of that.
GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("A10", 125, 600, 24),  # NVIDIA A10 Tensor Core GPU
        _gpu("A100-40G", 312, 1555, 40),  # NVIDIA A100 Tensor Core GPU
        _gpu("A100-80G", 312, 2039, 80),  # the same, SXM
        _gpu("A100-80G-PCIe", 312, 1935, 80),  # the same, PCIe
        _gpu("L4", 121, 300, 24),  # NVIDIA L4 Tensor Core GPU
        _gpu("L40S", 362, 864, 48),  # NVIDIA L40S
        _gpu("H100-SXM", 989, 3350, 80),  # NVIDIA H100 Tensor Core GPU
        _gpu("H100-PCIe", 756, 2000, 80),  # the same
        _gpu("H200", 989, 4800, 141),  # NVIDIA H200 Tensor Core GPU, SXM
        _gpu("B200", 2250, 8000, 180),  # NVIDIA DGX B200, for one of its eight GPUs
        _gpu("MI300X", 1307, 5300, 192),  # AMD Instinct MI300X Accelerator
    )
}


def gpu_named(name: str) -> Gpu:
    """Case does not matter. Raises InputError for one that is not in the table."""
    found = next((gpu for known, gpu in GPUS.items() if known.lower() == name.lower()), None)
    if found is None:
        raise InputError(f"--gpu: {name} is not known, only {', '.join(GPUS)}; --timing takes what was measured")
    return found
