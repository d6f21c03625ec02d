"""The layers' elementwise parts and sampling on CUDA GPUs: those of `cpu_ops`, as Triton kernels."""

from pkv_kernels.activation import silu_mul
from pkv_kernels.norm import add_rms_norm, rms_norm
from pkv_kernels.rotary import rotary_embedding
from pkv_kernels.sampling import sample

__all__ = ["add_rms_norm", "rms_norm", "rotary_embedding", "sample", "silu_mul"]
