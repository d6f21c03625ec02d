"""Compiles every kernel for GPUs that are not here, as its launcher would: `python -m pkv_kernels.aot`.

The launchers run on tensors without storage, and what they would launch is compiled, specialised as Triton's JIT would.
So tiles and arguments are listed nowhere else, and a launcher that read the values of a tensor would fail here. This
shows that kernels compile and assemble, that they keep within shared memory and registers, and that they have the
tensor-core instructions they should have. It shows neither results nor speed.
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

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia
from triton.compiler import ASTSource
from triton.runtime import JITFunction

from pkv_kernels.activation import silu_mul
from pkv_kernels.attention import paged_attention
from pkv_kernels.attention_tile import INTERPRETED
from pkv_kernels.kv_write import write_kv
from pkv_kernels.norm import add_rms_norm, rms_norm
from pkv_kernels.rotary import rotary_embedding
from pkv_kernels.sampling import sample

SHARED_MEMORY = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024}
"""Bytes that one program may have, by compute capability (CUDA C++ Programming Guide, technical specifications)."""
TENSOR_CORES = {
    arch: {"prompt": prompt, "decode": "mma.sync", "split decode": "mma.sync"}
    for arch, prompt in {80: "mma.sync", 90: "wgmma", 100: "tcgen05.mma"}.items()
}
"""The instructions that products of half precision should become."""
MAX_STACK = 128
"""Bytes of registers that a thread may spill: a few values that live across a loop, not what loops work on."""
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
HEAD_SIZES = (64, 80, 96, 128, 256)
BLOCK_SIZES = (16, 32, 64, 128)
GROUP = 7  # the worst one: rows do not fill their tile, and dividing by it is no shift
_PTX_TYPES = {torch.int32: "*i32", torch.int64: "*i64", **{dtype: f"*{name}" for name, dtype in DTYPES.items()}}


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel with the arguments and compile options that a launcher gave it."""

    kernel: Any
    arguments: dict[str, Any]
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Compiled:
    """What an assembled kernel takes (bytes of a program, registers and bytes of stack of a thread), and what it is."""

    shared: int
    registers: int
    stack: int
    tensor_cores: str


@contextmanager
def recorded_launches() -> Iterator[list[Launch]]:
    """What would be launched inside of the block. Nothing is."""
    launches: list[Launch] = []

    def record(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        arguments = dict(zip(kernel.arg_names, args, strict=False))
        options = {name: value for name, value in kwargs.items() if name not in kernel.arg_names}
        launches.append(Launch(kernel, arguments | {k: v for k, v in kwargs.items() if k not in options}, options))

    run, JITFunction.run = JITFunction.run, record
    try:
        yield launches
    finally:
        JITFunction.run = run


def compile_launch(launch: Launch, arch: int) -> Compiled:
    """Compiles and assembles one launch for a compute capability. Raises what Triton raises."""
    signature, constants, aligned = {}, {}, {}
    for index, parameter in enumerate(launch.kernel.params):
        value = launch.arguments[parameter.name]
        divisible = isinstance(value, torch.Tensor)
        if parameter.is_constexpr or (isinstance(value, int) and value == 1 and not parameter.do_not_specialize):
            signature[parameter.name], constants[parameter.name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[parameter.name] = _PTX_TYPES[value.dtype]
        elif isinstance(value, int):
            signature[parameter.name] = "i32"
            divisible = value % 16 == 0 and not parameter.do_not_specialize
        else:
            signature[parameter.name] = "fp32"
        if divisible:
            aligned[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, constants, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=launch.options)
    ptx = compiled.asm["ptx"]
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(compiled.asm["cubin"])
        cuobjdump = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
        usage = subprocess.check_output([cuobjdump, "--dump-resource-usage", cubin], text=True)
    registers, stack = (int(re.findall(rf"{what}:(\d+)", usage)[-1]) for what in ("REG", "STACK"))
    tensor_cores = next((name for name in ("tcgen05.mma", "wgmma", "mma.sync") if name in ptx), "")
    return Compiled(compiled.metadata.shared, registers, stack, tensor_cores)


def attention_launches(dtype: torch.dtype, head_size: int, block_size: int) -> Iterator[tuple[str, Launch]]:
    """All attention kernels of a dtype and head size: for prompts, and decoding with short and long block tables."""
    seqs, kv_heads = 8, 4
    cache = torch.empty(1024, block_size, kv_heads, head_size, dtype=dtype, device="meta")
    int32 = torch.empty(seqs + 1, dtype=torch.int32, device="meta")
    for name, query_len, keys in (("prompt", 512, 8192), ("decode", 1, 512), ("split decode", 1, 8192)):
        query = torch.empty(seqs * query_len, kv_heads * GROUP, head_size, dtype=dtype, device="meta")
        tables = int32.new_empty(seqs, keys // block_size)
        with recorded_launches() as launches:
            paged_attention(torch.empty_like(query), query, cache, cache, tables, int32, int32[1:], 0.125, query_len)
        yield from zip((name, "join"), launches, strict=False)


def other_launches(dtype: torch.dtype) -> list[Launch]:
    """All other kernels, in the shapes of an 8B model."""

    def empty(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    query, key, cache = empty(8, 32, 128), empty(8, 8, 128), empty(1024, 16, 8, 128)
    integers = empty(8, dtype=torch.int64)
    with recorded_launches() as launches:
        write_kv(key, key, cache, cache, integers)
        rms_norm(query, empty(128), 1e-6)
        add_rms_norm(empty(8, 4096), empty(8, 4096), empty(4096), 1e-6)
        rotary_embedding(query, key, empty(8192, 128, dtype=torch.float32), integers)
        silu_mul(empty(8, 2 * 14336))
        sample(empty(8, 128256), empty(8, dtype=torch.float32), integers, integers)
    return launches


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
    parser.add_argument("--arch", type=int, nargs="+", choices=SHARED_MEMORY, default=list(SHARED_MEMORY))
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--head-size", type=int, nargs="+", choices=HEAD_SIZES, default=list(HEAD_SIZES))
    parser.add_argument("--block-size", type=int, nargs="+", choices=BLOCK_SIZES, default=[16, 128])
    args = parser.parse_args(argv)
    if INTERPRETED:
        parser.error("TRITON_INTERPRET is set: there is nothing to compile")

    print(f"triton {triton.__version__}")
    print(f"{'arch':6} {'dtype':5} {'head':>4} {'block':>5} {'kernel':17} {'shared':>7} {'registers':>9} {'stack':>5}")
    failed = compiled_count = 0

    def show(arch: int, dtype: str, head_size: object, block_size: object, name: str, launch: Launch) -> None:
        nonlocal failed, compiled_count
        compiled = compile_launch(launch, arch)
        half = dtype != "fp32"
        expected = TENSOR_CORES[arch].get(name, "") if half else ""
        found = problems(compiled, arch, expected)
        compiled_count += 1
        failed += bool(found)
        print(
            f"sm_{arch:<3} {dtype:5} {head_size!s:>4} {block_size!s:>5} {name:17} {compiled.shared:7} "
            f"{compiled.registers:9} {compiled.stack:5}  {compiled.tensor_cores:11}  {'; '.join(found)}".rstrip(),
            flush=True,
        )

    for arch, dtype in itertools.product(args.arch, args.dtype):
        for head_size, block_size in itertools.product(args.head_size, args.block_size):
            for name, launch in attention_launches(DTYPES[dtype], head_size, block_size):
                show(arch, dtype, head_size, block_size, name, launch)
        for launch in other_launches(DTYPES[dtype]):
            show(arch, dtype, "", "", launch.kernel.__name__.removesuffix("_kernel"), launch)
    print(f"{compiled_count} kernels compiled and assembled, {failed} with problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
