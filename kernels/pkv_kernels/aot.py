"""Compiles every kernel for GPUs that are not here, as its launcher would: `python -m pkv_kernels.aot`.

The launchers run on tensors without storage, and Triton's JIT compiles what they would launch. So tiles and arguments
are listed nowhere else, and a launcher that read the values of a tensor would fail here. It shows that kernels compile
and assemble, that they keep within shared memory and registers, and that they have the tensor-core instructions they
should have. It shows neither results nor speed.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import torch
    import triton
except ImportError as error:
    print(f"pkv_kernels.aot: needs torch and triton: {error}", file=sys.stderr)
    raise SystemExit(2) from None
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia
from triton.runtime import JITFunction

from pkv_kernels.activation import silu_mul
from pkv_kernels.attention import paged_attention
from pkv_kernels.attention_tile import INTERPRETED
from pkv_kernels.kv_write import write_kv
from pkv_kernels.norm import add_rms_norm, rms_norm
from pkv_kernels.rotary import rotary_embedding
from pkv_kernels.sampling import sample

SHARED_MEMORY = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024}
"""Bytes that one program may have, by compute capability (CUDA C++ Programming Guide, technical specifications)."""
TENSOR_CORES = {
    arch: {"prompt": prompt, "decode": "mma.sync", "split decode": "mma.sync"}
    for arch, prompt in {80: "mma.sync", 89: "mma.sync", 90: "wgmma", 100: "tcgen05.mma", 120: "mma.sync"}.items()
}
"""The instructions that products of half precision should become."""
MAX_STACK = 160
"""Bytes of registers that a thread may spill."""
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
HEAD_SIZES = (64, 80, 96, 128, 256)
BLOCK_SIZES = (16, 32, 64, 128)
GROUP = 7
"""The worst one: its rows do not fill tiles, and dividing by it takes more than a shift."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What an assembled kernel takes (bytes of a program, registers and bytes of stack of a thread), and what it is."""

    shared: int
    registers: int
    stack: int
    tensor_cores: str


@dataclass(frozen=True, slots=True)
class AbsentGPU:
    """What Triton's JIT asks a driver while it compiles, answered for a GPU that is not here."""

    arch: int

    def get_current_device(self) -> int:
        """Tells compiled kernels apart."""
        return self.arch

    def get_current_stream(self, device: int) -> int:
        """Asked for before anything is compiled."""
        return 0

    def get_current_target(self) -> GPUTarget:
        """What is compiled for."""
        return GPUTarget("cuda", self.arch, 32)


@contextmanager
def compiling_for(arch: int) -> Iterator[list[tuple[str, Compiled]]]:
    """Compiles what is launched inside of the block, and launches nothing. Gives names, and what was compiled."""
    compiled = []
    launch = JITFunction.run

    def compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        binary = launch(kernel, *args, grid=grid, warmup=True, **kwargs)
        compiled.append((kernel.__name__.removesuffix("_kernel"), inspect_binary(binary)))

    triton.runtime.driver.set_active(AbsentGPU(arch))
    JITFunction.run = compile_only
    try:
        yield compiled
    finally:
        JITFunction.run = launch


def inspect_binary(binary: Any) -> Compiled:
    """What the assembler and the wheel's cuobjdump say about a compiled kernel."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(binary.asm["cubin"])
        cuobjdump = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
        usage = subprocess.check_output([cuobjdump, "--dump-resource-usage", cubin], text=True)
    registers, stack = (int(re.findall(rf"{what}:(\d+)", usage)[-1]) for what in ("REG", "STACK"))
    tensor_cores = next((name for name in ("tcgen05.mma", "wgmma", "mma.sync") if name in binary.asm["ptx"]), "")
    return Compiled(binary.metadata.shared, registers, stack, tensor_cores)


def compile_attention(arch: int, dtype: torch.dtype, head_size: int, block_size: int) -> Iterator[tuple[str, Compiled]]:
    """All attention kernels of a dtype and head size: for prompts, and decoding with short and long block tables."""
    seqs, kv_heads = 8, 4
    cache = torch.empty(1024, block_size, kv_heads, head_size, dtype=dtype, device="meta")
    int32 = torch.empty(seqs + 1, dtype=torch.int32, device="meta")
    for name, query_len, keys in (("prompt", 512, 8192), ("decode", 1, 512), ("split decode", 1, 8192)):
        query = torch.empty(seqs * query_len, kv_heads * GROUP, head_size, dtype=dtype, device="meta")
        tables = int32.new_empty(seqs, keys // block_size)
        with compiling_for(arch) as compiled:
            paged_attention(torch.empty_like(query), query, cache, cache, tables, int32, int32[1:], 0.125, query_len)
        yield name, compiled[0][1]
        yield from compiled[1:]


def compile_others(arch: int, dtype: torch.dtype) -> list[tuple[str, Compiled]]:
    """All other kernels, in the shapes of an 8B model."""

    def empty(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    query, key, cache = empty(8, 32, 128), empty(8, 8, 128), empty(1024, 16, 8, 128)
    integers = empty(8, dtype=torch.int64)
    with compiling_for(arch) as compiled:
        write_kv(key, key, cache, cache, integers)
        rms_norm(query, empty(128), 1e-6)
        add_rms_norm(empty(8, 4096), empty(8, 4096), empty(4096), 1e-6)
        rotary_embedding(query, key, empty(8192, 128, dtype=torch.float32), integers)
        silu_mul(empty(8, 2 * 14336))
        sample(empty(8, 128256), empty(8, dtype=torch.float32), integers, integers)
    return compiled


def problems(compiled: Compiled, arch: int, expected_tensor_cores: str) -> list[str]:
    """What is wrong with an assembled kernel."""
    found = []
    if compiled.shared > SHARED_MEMORY[arch]:
        found.append(f"{SHARED_MEMORY[arch]} bytes of shared memory are all there is")
    if compiled.stack > MAX_STACK:
        found.append(f"more than {MAX_STACK} bytes of stack")
    if compiled.tensor_cores != expected_tensor_cores:
        found.append(f"should have {expected_tensor_cores or 'no tensor-core instructions'}")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Compiles, prints one line per kernel, and gives 1 when any of them has a problem."""
    parser = argparse.ArgumentParser(
        prog="python -m pkv_kernels.aot", description="Compile every kernel ahead of time."
    )
    parser.add_argument("--arch", type=int, nargs="+", choices=SHARED_MEMORY, default=[80, 90, 100])
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--head-size", type=int, nargs="+", choices=HEAD_SIZES, default=list(HEAD_SIZES))
    parser.add_argument("--block-size", type=int, nargs="+", choices=BLOCK_SIZES, default=[16, 128])
    args = parser.parse_args(argv)
    if INTERPRETED:
        parser.error("TRITON_INTERPRET is set: there is nothing to compile")

    print(f"triton {triton.__version__}")
    print(f"{'arch':6} {'dtype':5} {'head':>4} {'block':>5} {'kernel':13} {'shared':>7} {'registers':>9} {'stack':>5}")

    def all_kernels() -> Iterator[tuple[int, str, object, object, str, Compiled]]:
        for arch, dtype in itertools.product(args.arch, args.dtype):
            for head_size, block_size in itertools.product(args.head_size, args.block_size):
                for name, compiled in compile_attention(arch, DTYPES[dtype], head_size, block_size):
                    yield arch, dtype, head_size, block_size, name, compiled
            for name, compiled in compile_others(arch, DTYPES[dtype]):
                yield arch, dtype, "", "", name, compiled

    count = failed = 0
    for arch, dtype, head_size, block_size, name, compiled in all_kernels():
        found = problems(compiled, arch, "" if dtype == "fp32" else TENSOR_CORES[arch].get(name, ""))
        count += 1
        failed += bool(found)
        print(
            f"sm_{arch:<3} {dtype:5} {head_size!s:>4} {block_size!s:>5} {name:13} {compiled.shared:7} "
            f"{compiled.registers:9} {compiled.stack:5}  {compiled.tensor_cores:11}  {'; '.join(found)}".rstrip(),
            flush=True,
        )
    print(f"{count} kernels compiled and assembled, {failed} with problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
