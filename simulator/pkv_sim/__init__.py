"""Replays traffic through vLLM's block logic. Nothing here yet: this source root fixes the place and the import contracts."""
