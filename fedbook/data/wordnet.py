"""The mammals of WordNet 3.0: a hierarchy of words, what of it ships, and how that was made from WordNet's own file.

``data.noun`` holds one synset a line: its offset in the file, its words, its pointers to other synsets, a gloss
(WordNet's manual, wndb(5WN)). Of the pointers two count here: ``@`` says "is a kind of" (a dog is a kind of canine),
``@i`` "is an instance of" (Secretariat is a thoroughbred). The subtree of mammal, with both, has 1,182 synsets.

What ships has the same form, reduced: one line a synset with its offset, its name and its hypernyms among the mammals,
below WordNet's licence. Both files are read as if their maker were hostile.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.data import sources
from fedbook.data.errors import BrokenFile
from fedbook.data.images import Root
from fedbook.data.lines import read_lines
from fedbook.data.root import find
from fedbook.data.taxonomy import Taxonomy

NODES = {"published": (1_180, 6_540), "all": (1_182, 6_542), "classes": (1_170, 6_448)}  # nodes, pairs
# The closure that the literature embeds leaves out these two, which have no hyponyms; nothing else differs.
UNPUBLISHED = ("female_mammal", "tusker")
SYMBOLS = ("!", "@", "@i", "~", "~i", "#m", "#s", "#p", "%m", "%s", "%p", "=", "+", ";c", "-c", ";r", "-r", ";u", "-u")
ROWS = 5_000  # lines of a file that ships

_HEADER = re.compile(r"  (\d+) (.*?) *")
_SYNSET = re.compile(r"(\d{8}) (\d\d) n ([0-9a-f]{2}) ([!-~ ]+?) \| .*")
_ROW = re.compile(r"(\d{8}) ([!-~]+)((?: @i?\d{8})*)")
_PLACE = re.compile(r"([!-~]+) (-?\d{1,7}\.\d{6}) (-?\d{1,7}\.\d{6})")


class Synset(NamedTuple):
    """Words of one meaning; ``hypernyms``: (symbol, offset), the symbol ``"@"`` or ``"@i"``."""

    words: tuple[str, ...]
    hypernyms: tuple[tuple[str, int], ...]


def wordnet_mammals(nodes: str = "published", root: Root = None) -> Taxonomy:
    """The mammals of WordNet 3.0 and the closure of "is a" among them. Ships with the book.

    ``nodes="published"``: the 1,180 nodes and 6,540 pairs of the literature, which leaves out tusker and female_mammal.
    ``"all"``: with these two. ``"classes"``: all without the 12 that are instances, no kinds: the eleven horses that
    won the Triple Crown, and Lucy, the skeleton. The root counts among the nodes; a node and itself are no pair.
    A name is a synset's first word; where several begin alike a number follows, in the file's order: bull.1, bull.2.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    arguments.one_of("nodes", nodes, NODES)
    source = sources.WORDNET_MAMMALS
    path = find(source.name, source.paths, source.remedy, root) / source.paths[0]
    taxonomy = read_taxonomy(path)
    try:
        if nodes == "published":
            taxonomy = taxonomy.without(UNPUBLISHED)
        elif nodes == "classes":
            taxonomy = taxonomy.without([taxonomy.names[i] for i in taxonomy.edges[taxonomy.instance, 0].tolist()])
    except ValueError as error:
        raise BrokenFile(path, str(error)) from error
    found = len(taxonomy.names), len(taxonomy.pairs)
    if found != NODES[nodes]:
        text = "{:,} nodes and {:,} pairs".format
        raise BrokenFile(path, f"gives {text(*found)}; expected are {text(*NODES[nodes])} (WordNet 3.0)")
    return taxonomy


def wordnet_embedding(root: Root = None) -> Tensor:
    """Where the book's own embedding puts the published mammals in the hyperbolic plane. Ships with the book.

    Shapes: float64 [1180, 3], points of the hyperboloid, time first, row i for name i of ``wordnet_mammals()``.
    Made by ``fedbook.papers.prirfed.embedding.train_embedding``; nobody is further than 12 from the origin.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    names = wordnet_mammals(root=root).names
    source = sources.WORDNET_EMBEDDING
    path = find(source.name, source.paths, source.remedy, root) / source.paths[0]
    return read_embedding(path, names)


def read_nouns(path: str | Path) -> tuple[tuple[str, ...], dict[int, Synset]]:
    """The licence (lines of text) and the synsets (by offset) of WordNet's ``data.noun``, packed by gzip or not.

    Every line is checked in full, its offset against its place in the file; hypernyms have to exist.
    Raises: BrokenFile (a ``ValueError``; names file, line and reason), FileNotFoundError.
    """
    path, licence, synsets = Path(path), [], {}
    for number, offset, line in read_lines(path):
        if line.startswith("  ") and not synsets:
            header = _HEADER.fullmatch(line)
            if not header or int(header[1]) != number:
                raise BrokenFile(path, f"line {number}: no line of the licence, {_shown(line)}")
            licence.append(header[2])
        else:
            try:
                place, synset = _synset(line)
            except ValueError as error:
                raise BrokenFile(path, f"line {number}: {error} in {_shown(line)}") from None
            if place != offset:
                raise BrokenFile(path, f"line {number}: says it begins at byte {place:,}, and begins at {offset:,}")
            synsets[place] = synset
    for offset, synset in synsets.items():
        for symbol, target in synset.hypernyms:
            if target not in synsets:
                raise BrokenFile(path, f"synset {offset:08}: its hypernym {symbol}{target:08} is not in the file")
    return tuple(licence), synsets


def mammal_rows(synsets: Mapping[int, Synset]) -> tuple[str, ...]:
    """The lines that ship: the subtree of mammal, in the order of offsets. Raises: ValueError without one mammal."""
    roots = [offset for offset, synset in synsets.items() if synset.words[0] == "mammal"]
    if len(roots) != 1:
        raise ValueError(f"synsets: {len(roots)} begin with the word mammal; needed is one")
    children: dict[int, list[int]] = {}
    for offset, synset in synsets.items():
        for _, parent in synset.hypernyms:
            children.setdefault(parent, []).append(offset)
    kept, queue = set(roots), list(roots)
    while queue:
        new = set(children.get(queue.pop(), ())) - kept
        kept |= new
        queue += new
    often = Counter(synsets[offset].words[0] for offset in kept)
    seen: Counter[str] = Counter()
    rows = []
    for offset in sorted(kept):
        word = synsets[offset].words[0]
        seen[word] += 1
        above = [f"{symbol}{parent:08}" for symbol, parent in synsets[offset].hypernyms if parent in kept]
        rows.append(" ".join([f"{offset:08}", word if often[word] == 1 else f"{word}.{seen[word]}", *above]))
    return tuple(rows)


def read_taxonomy(path: str | Path) -> Taxonomy:
    """The hierarchy in a file that ships (all 1,182 mammals). Raises: BrokenFile, FileNotFoundError."""
    path = Path(path)
    rows, names, above = {}, [], []
    for number, _, line in read_lines(path):
        if line.startswith("  "):
            continue
        row = _ROW.fullmatch(line)
        if not row or len(rows) == ROWS:
            why = f"more than {ROWS:,} synsets" if row else f"no synset with a name and its hypernyms, {_shown(line)}"
            raise BrokenFile(path, f"line {number}: {why}")
        if rows and int(row[1]) <= next(reversed(rows)):
            raise BrokenFile(path, f"line {number}: offset {row[1]} does not follow those before it")
        rows[int(row[1])] = len(rows)
        names.append(row[2])
        above.append((number, row[3].split()))
    edges, instance = [], []
    for child, (number, parents) in enumerate(above):
        for parent in parents:
            symbol, offset = parent[:-8], int(parent[-8:])
            if offset not in rows:
                raise BrokenFile(path, f"line {number}: its hypernym {parent} is not in the file")
            edges.append((child, rows[offset]))
            instance.append(symbol == "@i")
    try:
        return Taxonomy.from_edges("wordnet_mammals", names, edges, instance)
    except ValueError as error:
        raise BrokenFile(path, str(error)) from error


def read_embedding(path: str | Path, names: Sequence[str]) -> Tensor:
    """The points of an embedding file, which has to have exactly these names in this order.

    Shapes: float64 [n, 3]. The file holds the two spatial coordinates of the hyperboloid, from which time follows.
    Raises: BrokenFile, FileNotFoundError.
    """
    path, places = Path(path), []
    for number, _, line in read_lines(path):
        if line.startswith("  "):
            continue
        row = _PLACE.fullmatch(line)
        if not row:
            raise BrokenFile(path, f"line {number}: no name with two coordinates, {_shown(line)}")
        if len(places) == len(names) or row[1] != names[len(places)]:
            wanted = "the end" if len(places) == len(names) else names[len(places)]
            raise BrokenFile(path, f"line {number}: the place of {row[1]}; expected is {wanted}")
        places.append((float(row[2]), float(row[3])))
    if len(places) < len(names):
        raise BrokenFile(path, f"holds {len(places):,} places; expected are {len(names):,}")
    space = torch.tensor(places, dtype=torch.float64).reshape(-1, 2)
    return torch.cat([(1 + space.square().sum(1, keepdim=True)).sqrt(), space], 1)


def _synset(line: str) -> tuple[int, Synset]:
    """Offset and synset of a line of ``data.noun``. Raises: ValueError with the reason."""
    parts = _SYNSET.fullmatch(line)
    if not parts:
        raise ValueError("not 'offset file n words ... | gloss'")
    fields = iter(parts[4].split(" "))
    words, hypernyms = [], []
    for _ in range(int(parts[3], 16)):
        words.append(_field(fields, r"[!-~]+", "a word"))
        _field(fields, r"[0-9a-f]", "the number of its sense")
    for _ in range(int(_field(fields, r"\d{3}", "the number of pointers"))):
        symbol = _field(fields, r"[!-~]+", "a pointer")
        target = int(_field(fields, r"\d{8}", "a pointer's target"))
        kind = _field(fields, r"[nvars]", "a pointer's part of speech")
        _field(fields, r"[0-9a-f]{4}", "a pointer's words")
        if symbol not in SYMBOLS:
            raise ValueError(f"{symbol!r} is no pointer of a noun")
        if symbol in ("@", "@i"):
            if kind != "n":
                raise ValueError("a hypernym that is no noun")
            hypernyms.append((symbol, target))
    if not words:
        raise ValueError("no words")
    if next(fields, None) is not None:
        raise ValueError("more fields than it announces")
    return int(parts[1]), Synset(tuple(words), tuple(hypernyms))


def _field(fields: Iterator[str], pattern: str, what: str) -> str:
    field = next(fields, "")
    if not re.fullmatch(pattern, field):
        raise ValueError(f"{_shown(field)} where {what} should be")
    return field


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
