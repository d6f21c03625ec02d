"""What traffic finds in the KV cache, by vLLM's own rules: block hashes, block pool, cache manager, scheduler."""
