"""The mammals of WordNet 3.0: a hierarchy of words, and where the book's embedding puts them in the hyperbolic plane.

What ships is one line a synset: its offset in WordNet's ``data.noun``, its name, its hypernyms among the mammals. There
``@`` says "is a kind of" (a dog is a kind of canine), ``@i`` "is an instance of" (Secretariat is a thoroughbred).
Lines that begin with two blanks are comments, WordNet's licence among them. ``data/make.py`` made both files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.data.formats import content, read_lines, reading
from fedbook.data.root import BrokenFile, Root, find
from fedbook.data.sources import SOURCES

# The closure that the literature embeds leaves out these two, which have no hyponyms; nothing else differs.
UNPUBLISHED = ("female_mammal", "tusker")
FARTHEST = 10_000_000  # of a coordinate


@dataclass(frozen=True, eq=False)
class Taxonomy:
    """Words below one root; a word may have several directly above it. Made by ``from_edges``.

    Shapes: ``edges`` int64 [E, 2], rows (child, parent), indices into ``names``; ``pairs`` int64 [P, 2],
    rows (descendant, ancestor): the transitive closure of the edges, each pair once, in order, nobody paired with
    itself; ``depth`` int64 [n]: edges on the shortest way up to the root, whose index is ``root``.
    """

    name: str
    names: tuple[str, ...] = field(repr=False)
    root: int
    edges: Tensor = field(repr=False)
    pairs: Tensor = field(repr=False)
    depth: Tensor = field(repr=False)

    @classmethod
    def from_edges(cls, name: str, names: Sequence[str], edges: Sequence[tuple[int, int]]) -> Taxonomy:
        """The hierarchy with these (child, parent) edges.

        Memory: n^2 bytes while the closure is formed.
        Raises: ValueError (a name or an edge that comes twice, no such name, no root or several, a circle).
        """
        count, names = len(names), tuple(names)
        edges = [(int(child), int(parent)) for child, parent in edges]
        if len(set(names)) < count or len(set(edges)) < len(edges):
            raise ValueError("names, edges: one comes twice")
        if wrong := [edge for edge in edges if not all(0 <= end < count for end in edge)]:
            raise arguments.wrong(ValueError, "edges", wrong, f"pairs of whole numbers in [0, {count - 1}]")
        parents: list[list[int]] = [[] for _ in names]
        children: list[list[int]] = [[] for _ in names]
        for child, parent in edges:
            parents[child].append(parent)
            children[parent].append(child)
        roots = [i for i in range(count) if not parents[i]]
        if len(roots) != 1:
            few = ", ".join(repr(names[i]) for i in roots[:3])
            raise ValueError(f"names: {len(roots)} have nothing above them ({few or 'none'}); allowed is one, the root")
        above = torch.zeros(count, count, dtype=torch.bool)
        waiting = [len(above_it) for above_it in parents]
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
        return cls(
            name,
            names,
            roots[0],
            torch.tensor(edges, dtype=torch.int64).reshape(-1, 2),
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
        edges = [(new[a], new[b]) for a, b in self.edges.tolist() if a in new and b in new]
        return Taxonomy.from_edges(self.name, [self.names[i] for i in kept], edges)


def wordnet_mammals(root: Root = None) -> Taxonomy:
    """The mammals of WordNet 3.0 and the closure of "is a" among them, kinds and instances. Ships with the book.

    These are the 1,180 nodes and 6,540 pairs of the literature, which leaves out tusker and female_mammal. The root
    counts among the nodes; a node and itself are no pair.
    A name is a synset's first word; where several begin alike a number follows, in the file's order: bull.1, bull.2.
    Raises: DataNotFound, BrokenFile (any other file than the one that ships), TypeError, ValueError.
    """
    source = SOURCES["wordnet_mammals"]
    path, expected = find(source, root) / source.paths[0], source.files[0]
    there = hashlib.sha256(content(path, expected.content_size)).hexdigest()
    if there != expected.content:
        raise BrokenFile(path, f"is not the file that ships: unpacked it has sha256 {there}, not {expected.content}")
    return read_taxonomy(path).without(UNPUBLISHED)


def wordnet_embedding(root: Root = None) -> Tensor:
    """Where the book's own embedding puts the published mammals in the hyperbolic plane. Ships with the book.

    Shapes: float64 [1180, 3], points of the hyperboloid, time first, row i for name i of ``wordnet_mammals()``.
    Made by ``fedbook.papers.prirfed.embedding.train_embedding``; nobody is further than 12 from the origin.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    names = wordnet_mammals(root).names
    source = SOURCES["wordnet_embedding"]
    return read_embedding(find(source, root) / source.paths[0], names)


def read_taxonomy(path: str | Path) -> Taxonomy:
    """The hierarchy in a file that ships (all 1,182 mammals). Raises: BrokenFile, FileNotFoundError."""
    path = Path(path)
    with reading(path):
        rows = _rows(path)
        place = {offset: row for row, (offset, *_) in enumerate(rows)}
        edges = [(child, place[parent.lstrip("@i")]) for child, row in enumerate(rows) for parent in row[2:]]
        return Taxonomy.from_edges("wordnet_mammals", [name for _, name, *_ in rows], edges)


def read_embedding(path: str | Path, names: Sequence[str]) -> Tensor:
    """The points of an embedding file, which has to have exactly these names in this order.

    Shapes: float64 [n, 3]. The file holds the two spatial coordinates of the hyperboloid, from which time follows.
    No checksum is asked for: an embedding that was trained anew is as good as the one that ships.
    Raises: BrokenFile, FileNotFoundError.
    """
    path = Path(path)
    with reading(path):
        rows = _rows(path)
        if [row[0] for row in rows] != list(names):
            raise BrokenFile(path, f"holds other names than the {len(names):,} that are expected, or in another order")
        space = torch.tensor([(float(x), float(y)) for _, x, y in rows], dtype=torch.float64)
        if not (space.abs() < FARTHEST).all():
            raise BrokenFile(path, f"holds coordinates that are not below {FARTHEST:,}")
    return torch.cat([(1 + space.square().sum(1, keepdim=True)).sqrt(), space], 1)


def _rows(path: Path) -> list[list[str]]:
    """The words of each line that is no comment."""
    return [line.split() for _, line in read_lines(path) if not line.startswith("  ")]
