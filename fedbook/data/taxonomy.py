"""Hierarchies of words: who is directly below whom, and the closure of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedbook import arguments


@dataclass(frozen=True, eq=False)
class Taxonomy:
    """Words below one root; a word may have several directly above it. Made by ``from_edges``.

    Shapes: ``edges`` int64 [E, 2], rows (child, parent), indices into ``names``; ``instance`` bool [E]: whether the
    child is an instance of the parent, no kind of it; ``pairs`` int64 [P, 2], rows (descendant, ancestor): the
    transitive closure of the edges, each pair once, in order, nobody paired with itself; ``depth`` int64 [n]: edges on
    the shortest way up to the root, whose index is ``root``.
    """

    name: str
    names: tuple[str, ...] = field(repr=False)
    root: int
    edges: Tensor = field(repr=False)
    instance: Tensor = field(repr=False)
    pairs: Tensor = field(repr=False)
    depth: Tensor = field(repr=False)

    @classmethod
    def from_edges(
        cls,
        name: str,
        names: Sequence[str],
        edges: Sequence[tuple[int, int]],
        instance: Sequence[bool] | None = None,
    ) -> Taxonomy:
        """The hierarchy with these (child, parent) edges; ``instance``: one flag an edge (None: all are kinds).

        Memory: n^2 bytes while the closure is formed.
        Raises: ValueError (a name or an edge that comes twice, no root or several, a circle).
        """
        count, names = len(names), tuple(names)
        if len(set(names)) < count:
            raise ValueError(f"names: {next(w for w in names if names.count(w) > 1)!r} comes twice")
        if len({tuple(edge) for edge in edges}) < len(edges):
            raise ValueError("edges: one comes twice")
        parents: list[list[int]] = [[] for _ in names]
        children: list[list[int]] = [[] for _ in names]
        for child, parent in edges:
            arguments.integer("edges", child, 0, count - 1)
            arguments.integer("edges", parent, 0, count - 1)
            parents[child].append(parent)
            children[parent].append(child)
        roots = [i for i in range(count) if not parents[i]]
        if len(roots) != 1:
            few = ", ".join(repr(names[i]) for i in roots[:3])
            raise ValueError(f"names: {len(roots)} have nothing above them ({few or 'none'}); allowed is one, the root")
        above = torch.zeros(count, count, dtype=torch.bool)
        waiting = [len(some) for some in parents]
        depth, queue = [0] * count, roots.copy()
        for node in queue:  # each after all that are above it
            if node != roots[0]:
                above[node] = above[parents[node]].any(0)
                above[node, parents[node]] = True
                depth[node] = 1 + min(depth[parent] for parent in parents[node])
            for child in children[node]:
                waiting[child] -= 1
                if not waiting[child]:
                    queue.append(child)
        if len(queue) < count:
            raise ValueError(
                f"edges: {names[next(i for i in range(count) if waiting[i])]!r} is above or below a circle"
            )
        flags = [False] * len(edges) if instance is None else list(instance)
        if len(flags) != len(edges):
            raise ValueError(f"instance: got {len(flags)} flags for {len(edges)} edges; allowed is one each")
        return cls(
            name,
            names,
            roots[0],
            torch.tensor([tuple(edge) for edge in edges], dtype=torch.int64).reshape(-1, 2),
            torch.tensor(flags, dtype=torch.bool),
            above.nonzero(),
            torch.tensor(depth),
        )

    def index(self, word: str) -> int:
        """Where ``word`` is in ``names``. Raises: TypeError, ValueError (with words that look alike)."""
        if not isinstance(word, str):
            raise arguments.wrong(TypeError, "word", word, f"a name of {self.name}")
        if word not in self.names:
            import difflib

            near = difflib.get_close_matches(word, self.names, 3)
            hint = f", such as {', '.join(near)}" if near else ""
            raise arguments.wrong(
                ValueError, "word", word, f"one of the {len(self.names):,} names of {self.name}{hint}"
            )
        return self.names.index(word)

    def without(self, words: Sequence[str]) -> Taxonomy:
        """The hierarchy without these words and all edges that touch them.

        Raises: TypeError, ValueError (also if somebody is then left without a way to the root).
        """
        gone = {self.index(word) for word in words}
        kept = [i for i in range(len(self.names)) if i not in gone]
        new = {old: i for i, old in enumerate(kept)}
        rows = [k for k, (a, b) in enumerate(self.edges.tolist()) if a in new and b in new]
        edges = [(new[a], new[b]) for a, b in self.edges[rows].tolist()]
        return Taxonomy.from_edges(self.name, [self.names[i] for i in kept], edges, self.instance[rows].tolist())
