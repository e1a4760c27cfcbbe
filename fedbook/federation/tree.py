"""Nested dictionaries of tensors: the form of parameters, client state and messages.

A tree is a tensor, or a dictionary whose values are trees. Names of leaves join with "/".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

Tree = Any  # a leaf (tensor, encoded buffer) or a mapping from words to trees


def leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Pairs (name, leaf) in the order of insertion; a bare leaf has the name ``prefix``."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from leaves(value, f"{prefix}/{key}" if prefix else str(key))
    else:
        yield prefix, tree


def tree_map(function: Callable, *trees: Tree) -> Tree:
    """``function`` applied leaf by leaf to trees of one form. Raises: ValueError if the forms differ."""
    first = trees[0]
    if not isinstance(first, Mapping):
        return function(*trees)
    for other in trees[1:]:
        if not isinstance(other, Mapping) or set(other) != set(first):
            names = sorted(other) if isinstance(other, Mapping) else type(other).__name__
            raise ValueError(f"trees: got the names {sorted(first)} and {names}; allowed are trees with equal names")
    return {key: tree_map(function, *(tree[key] for tree in trees)) for key in first}


def flatten(tree: Tree) -> dict[str, Any]:
    """The tree as one flat dictionary from joined names to leaves. Raises: ValueError (two leaves of one name)."""
    pairs = list(leaves(tree))
    flat = dict(pairs)
    if len(flat) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"tree: got the names {sorted(names)}; allowed are names that differ when joined with '/'")
    return flat


def unflatten(flat: Mapping[str, Any], form: Tree) -> Tree:
    """The leaves of ``flat`` put back into the form of ``form`` (inverse of :func:`flatten`)."""

    def place(tree: Tree, prefix: str) -> Tree:
        if isinstance(tree, Mapping):
            return {key: place(value, f"{prefix}/{key}" if prefix else str(key)) for key, value in tree.items()}
        return flat[prefix]

    return place(form, "")


def per_row(values: Tensor, leaf: Tensor) -> Tensor:
    """``values`` [R] (or [S, m]) so that they broadcast over a leaf [R, ...] ([S, m, ...]), on its device."""
    return values.to(leaf.device).view(*values.shape, *[1] * (leaf.ndim - values.ndim))


def for_each(tree: Tree, clients: int) -> Tree:
    """Leaves [S, ...] repeated for each of ``clients``: [S, K, ...]."""
    return tree_map(lambda x: x[:, None].repeat(1, clients, *[1] * (x.ndim - 1)), tree)


def first_leaf(tree: Tree) -> Tensor | None:
    """The first tensor of the tree, or None if it has none."""
    return next((leaf for _, leaf in leaves(tree) if isinstance(leaf, Tensor)), None)
