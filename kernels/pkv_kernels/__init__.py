"""Paged Triton kernels. Each module holds one kernel and its launcher; `reference` says in float64 torch what they compute.

    from pkv_kernels.kv_write import write_kv
        write_kv(key, value, key_cache, value_cache, slot_mapping) -> None
    from pkv_kernels.attention import paged_attention
        paged_attention(out, query, key_cache, value_cache, block_tables, query_start_locs, seq_lens, scale, max_query_len) -> None
    from pkv_kernels.norm import add_rms_norm, rms_norm
        rms_norm(x, weight, eps) -> Tensor
        add_rms_norm(x, residual, weight, eps) -> Tensor        # residual += x in place; the norm of the sum
    from pkv_kernels.rotary import rotary_embedding
        rotary_embedding(query, key, cos_sin_cache, positions) -> None      # in place
    from pkv_kernels.activation import silu_mul
        silu_mul(gate_up) -> Tensor                             # [tokens, 2 n] (gate, up) to [tokens, n]
    from pkv_kernels.sampling import sample
        sample(logits, temperatures, seeds, positions) -> Tensor            # greedy where the temperature is 0

`pkv_kernels.reference` has functions of the same names and arguments. It needs torch alone, so importing this package
must not import triton.

No launcher waits for the GPU or reads a tensor's values: grids come from shapes, so all of them work under CUDA graphs.
None checks shapes on its way; their docstrings say what they take.
"""
