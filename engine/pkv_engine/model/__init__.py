"""The model: configuration, weights, layers, attention over the paged KV cache. Imports torch; knows no requests."""
