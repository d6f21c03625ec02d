"""Paged Triton kernels. Each module has a kernel with its launcher; `reference` has the same functions in plain torch.

    kv_write.write_kv(key, value, key_cache, value_cache, slot_mapping) -> None
    attention.paged_attention(
        out, query, key_cache, value_cache, block_tables, query_start_locs, seq_lens, scale, max_query_len
    ) -> None
    norm.rms_norm(x, weight, eps) -> Tensor
    norm.add_rms_norm(x, residual, weight, eps) -> Tensor       # residual += x in place, then the norm of the sum
    rotary.rotary_embedding(query, key, cos_sin_cache, positions) -> None       # in place
    activation.silu_mul(gate_up) -> Tensor                      # [tokens, 2 * width] to [tokens, width]
    sampling.sample(logits, temperatures, seeds, positions) -> Tensor           # greedy where the temperature is 0

`reference` needs torch alone, so this package imports nothing by itself. Launchers never wait for the GPU nor read the
values of a tensor: grids come from shapes, so that all of them work in CUDA graphs. They do not check shapes either.
"""
