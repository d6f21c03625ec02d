"""Fixes that lose nothing: edits of the source text, each replayed before it counts."""
