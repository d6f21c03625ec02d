"""Where weights come from: files, or a seed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import torch

from pkv_lint.prompt.errors import InputError

Source = Callable[[str, tuple[int, ...]], torch.Tensor | None]
"""The tensor of a Hugging Face name and of the shape that is expected there, in whatever dtype it is stored; None where
there is no such tensor. What is stored decides, whatever shape was expected."""


class Weights:
    """Weights of one dtype on one device."""

    def __init__(
        self,
        source: Source,
        origin: str,
        dtype: torch.dtype,
        device: torch.device,
        rope_factors: torch.Tensor | None = None,
    ) -> None:
        """`origin` is the file or directory to blame; `rope_factors` as for `cos_sin_table`."""
        self._source = source
        self._origin = origin
        self.dtype = dtype
        self.device = device
        self.rope_factors = rope_factors

    def get(self, name: str, *shape: int) -> torch.Tensor:
        """Raises InputError where the weight is missing or has another shape."""
        try:
            tensor = self._source(name, shape)
        except Exception as error:  # of the libraries that read files
            raise InputError(f"the weight {name} cannot be read: {error}", file=self._origin) from None
        if tensor is None:
            raise InputError(f"the weight {name} is missing", file=self._origin)
        if tuple(tensor.shape) != shape:
            raise InputError(f"the weight {name} has the shape {[*tensor.shape]}, not {[*shape]}", file=self._origin)
        return tensor.to(device=self.device, dtype=self.dtype).contiguous()


def safetensors(directory: Path) -> Source:
    """The weights of a model directory: model.safetensors, or the files that its index names."""
    from safetensors import SafetensorError, safe_open

    index = directory / "model.safetensors.index.json"
    if index.is_file():
        try:
            files = {directory / name for name in json.loads(index.read_text("utf-8"))["weight_map"].values()}
        except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
            raise InputError("not an index of safetensors files", file=str(index)) from None
    else:
        files = {directory / "model.safetensors"}
    places: dict[str, Callable[[str], torch.Tensor]] = {}
    for file in sorted(files):
        if not file.is_file():
            raise InputError("no such file of weights (safetensors and GGUF are read)", file=str(file))
        try:
            reader = safe_open(file, framework="pt")
        except SafetensorError as error:
            raise InputError(f"not a safetensors file: {error}", file=str(file)) from None
        places |= dict.fromkeys(reader.keys(), reader.get_tensor)
    return lambda name, _: places[name](name) if name in places else None


def random(seed: int) -> Source:
    """Weights that depend on nothing but the seed and their names, of such a size that activations keep theirs."""

    def source(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
        values = torch.randn(shape, generator=generator)
        if name.endswith("norm.weight"):
            return 1 + 0.1 * values
        return values if "embed" in name else values / shape[-1] ** 0.5

    return source
