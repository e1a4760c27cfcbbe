"""Makes the data that ship: ``python data/make.py`` and then one of

    fashion_mnist SOURCE_DIR OUT_DIR
    wordnet_mammals SOURCE_DIR OUT_DIR
    wordnet_embedding DIR                 trains, for about half a minute
    sums DATA_DIR

The subset of Fashion-MNIST is a function of the full public files alone: which rows are kept follows from a keyed
stream, their order is that of the full set, and the packing holds no name or time. So whoever has the full files can
make the subset again, byte for byte. So it is with the mammals of WordNet. Their embedding is trained, without any
random number, but from machine to machine its last digits differ.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedbook import arguments
from fedbook.data import BrokenFile
from fedbook.data.formats import read_lines, reading
from fedbook.data.images import make_fashion_mnist
from fedbook.data.wordnet import UNPUBLISHED, read_embedding, read_taxonomy
from fedbook.papers.prirfed.embedding import train_embedding

SUMS = "SHA256SUMS"
MAMMALS, EMBEDDING, LICENCE = "mammals.txt.gz", "embedding.txt.gz", "LICENSE.txt"


class Synset(NamedTuple):
    """Words of one meaning; ``hypernyms``: (symbol, offset), the symbol ``"@"`` or ``"@i"``."""

    words: tuple[str, ...]
    hypernyms: tuple[tuple[str, int], ...]


def make_wordnet_mammals(source: str | Path, out: str | Path) -> tuple[Path, ...]:
    """Writes the mammals among the nouns of WordNet 3.0, and its licence, to ``out``; returns the two files.

    ``source``: the folder that holds ``data.noun`` or ``data.noun.gz``.
    Raises: BrokenFile, FileNotFoundError.
    """
    source, out = Path(source), Path(out)
    plain = source / "data.noun"
    nouns = plain if plain.is_file() else source / "data.noun.gz"
    licence, synsets = read_nouns(nouns)
    try:
        rows = mammal_rows(synsets)
    except ValueError as error:
        raise BrokenFile(nouns, str(error)) from error
    out.mkdir(parents=True, exist_ok=True)
    head = "The mammals of WordNet 3.0, from its data.noun: offset, name, hypernyms (@ a kind of, @i an instance of)."
    write_lines(out / MAMMALS, [head, "", *licence], rows)
    read_taxonomy(out / MAMMALS)
    (out / LICENCE).write_text("".join(f"{line}\n" for line in licence), encoding="ascii", newline="\n")
    return out / MAMMALS, out / LICENCE


def make_wordnet_embedding(out: str | Path) -> Path:
    """Trains the embedding of the mammals in the folder ``out`` and writes it there.

    Raises: BrokenFile, FileNotFoundError.
    """
    out = Path(out)
    mammals = read_taxonomy(out / MAMMALS).without(UNPUBLISHED)
    points = train_embedding(mammals)
    rows = [f"{name} {x:.6f} {y:.6f}" for name, (x, y) in zip(mammals.names, points[:, 1:].tolist(), strict=True)]
    head = "The mammals of WordNet 3.0 in the hyperbolic plane: name, the two spatial coordinates on the hyperboloid."
    origin = "Made from mammals.txt.gz by fedbook.papers.prirfed.embedding.train_embedding."
    write_lines(out / EMBEDDING, [head, origin], rows)
    read_embedding(out / EMBEDDING, mammals.names)
    return out / EMBEDDING


def read_nouns(path: str | Path) -> tuple[tuple[str, ...], dict[int, Synset]]:
    """The licence (lines of text) and the synsets (by offset) of WordNet's ``data.noun``, packed by gzip or not.

    Raises: BrokenFile (a line of another form, or at another place than it says), FileNotFoundError.
    Source: WordNet's manual, wndb(5WN).
    """
    path, licence, synsets, offset = Path(path), [], {}, 0
    for number, line in read_lines(path):
        with reading(path):
            if line.startswith("  "):
                licence.append(line[2:].partition(" ")[2].rstrip(" "))
            else:
                place, synset = _synset(line)
                if place != offset:
                    raise BrokenFile(path, f"line {number} says it begins at byte {place:,}, and begins at {offset:,}")
                synsets[place] = synset
        offset += len(line) + 1
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


def _synset(line: str) -> tuple[int, Synset]:
    """Offset and synset of a line: offset, file, n, number of words, words, number of pointers, pointers, | gloss."""
    offset, _, _, count, *fields = line.partition(" | ")[0].split(" ")
    words, (pointers, *fields) = fields[: 2 * int(count, 16) : 2], fields[2 * int(count, 16) :]
    if len(fields) != 4 * int(pointers):
        raise ValueError(f"{arguments.shown(line)} does not hold the {int(pointers)} pointers that it announces")
    kinds = zip(fields[::4], fields[1::4], strict=True)
    return int(offset), Synset(tuple(words), tuple((symbol, int(at)) for symbol, at in kinds if symbol[0] == "@"))


def write_lines(path: str | Path, comments: Sequence[str], rows: Sequence[str]) -> None:
    """Writes comments, indented by two blanks, and rows, packed by gzip: level 9, no name and no time in it."""
    text = "".join(f"{line}\n" for line in [*(f"  {comment}" for comment in comments), *rows])
    with Path(path).open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(text.encode("ascii"))


def checksums(folder: str | Path) -> str:
    """The text of ``SHA256SUMS``: every file below ``folder`` but itself, ``make.py`` and what lies in ``results/``."""
    folder = Path(folder)
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    kept = [name for name in files if name not in (SUMS, "make.py") and not name.startswith(("results/", "__pyc"))]
    return "".join(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in kept)


def main(words: list[str]) -> int:
    """The command line of this module; returns the exit status."""
    makers = {"fashion_mnist": make_fashion_mnist, "wordnet_mammals": make_wordnet_mammals}
    made: tuple[Path, ...] = ()
    if len(words) == 3 and words[0] in makers:
        made = makers[words[0]](Path(words[1]), Path(words[2]))
    elif len(words) == 2 and words[0] == "wordnet_embedding":
        made = (make_wordnet_embedding(words[1]),)
    for path in made:
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path}")
    if made:
        return 0
    if len(words) == 2 and words[0] == "sums":
        (Path(words[1]) / SUMS).write_text(checksums(words[1]), encoding="utf-8")
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
