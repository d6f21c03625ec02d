"""The fast core: what the plain core says about cached tokens, for sequential and recorded replay of whole traffics.

Blocks of one chain behave alike, so nothing here is done block by block. A prefix tree, shared by all capacities, turns
the prompts of a traffic into chains of segments once (`prefix_tree`). A cache of one capacity keeps for each segment
the few stretches of blocks that were last used together (`cache`).
"""
