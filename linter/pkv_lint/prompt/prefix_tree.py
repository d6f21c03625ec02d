"""A radix tree over token arrays: how much of a prompt an unbounded prefix cache would have seen before."""

from __future__ import annotations

from array import array


class PrefixTree:
    """Holds token sequences. Tokens without a branch are one edge, so cost grows with branches, not with tokens."""

    def __init__(self) -> None:
        self._root = Node(array("i"))

    def match(self, ids: array[int]) -> int:
        """The length of the longest prefix of `ids` that some held sequence starts with."""
        return self.look(ids)[0]

    def look(self, ids: array[int]) -> tuple[int, bool]:
        """`match(ids)`, and whether something held goes on behind it (otherwise than `ids`, where they go on)."""
        node, at = self._root, 0
        while at < len(ids):
            child = node.children.get(ids[at])
            if child is None:
                break
            shared = common_prefix(child.label, ids, at)
            at += shared
            if shared < len(child.label):
                return at, True
            node = child
        return at, bool(node.children)

    def insert(self, ids: array[int]) -> int:
        """Hold `ids`. Returns `match(ids)` as it was before."""
        node, at = self._root, 0
        while at < len(ids):
            child = node.children.get(ids[at])
            if child is None:
                node.children[ids[at]] = Node(ids[at:])
                return at
            shared = common_prefix(child.label, ids, at)
            at += shared
            if shared < len(child.label):
                if at == len(ids):
                    return at  # ends inside an edge: nothing new
                child.split(shared)
            node = child
        return at

    def copy(self) -> PrefixTree:
        """A tree that holds the same and can be added to by itself."""
        tree = PrefixTree()
        tree._root = self._root.copy()
        return tree


class Node:
    """An edge and what hangs below it."""

    __slots__ = ("children", "label")

    def __init__(self, label: array[int], children: dict[int, Node] | None = None) -> None:
        self.label = label
        self.children = children if children is not None else {}

    def split(self, at: int) -> None:
        below = Node(self.label[at:], self.children)
        self.children = {below.label[0]: below}
        self.label = self.label[:at]

    def copy(self) -> Node:
        """The same with nodes of its own, labels excepted: they never change."""
        top = Node(self.label)
        pairs = [(self, top)]
        for node, twin in pairs:
            for key, child in node.children.items():
                twin.children[key] = Node(child.label)
                pairs.append((child, twin.children[key]))
        return top


def common_prefix(label: array[int], ids: array[int], start: int = 0) -> int:
    """How many items `label` and `ids[start:]` share from their beginnings. Compares memory, not items."""
    low, high = 0, min(len(label), len(ids) - start)
    if label[:high] == ids[start : start + high]:
        return high
    while low + 1 < high:  # invariant: the first `low` agree, the first `high` do not
        middle = (low + high) // 2
        if label[low:middle] == ids[start + low : start + middle]:
            low = middle
        else:
            high = middle
    return low
