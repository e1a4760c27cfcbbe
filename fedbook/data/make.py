"""Makes the data that ship, and one that may not: ``python -m fedbook.data.make`` and then one of

    fashion_mnist SOURCE_DIR OUT_DIR
    wordnet_mammals SOURCE_DIR OUT_DIR
    wordnet_embedding DIR                 trains, for about half a minute
    mimic3 BENCHMARK_DIR OUT_DIR          does not ship: of your own copy, for yourself
    sums DATA_DIR

The subset of Fashion-MNIST is a function of the full public files alone: which rows are kept follows from a keyed
stream, their order is that of the full set, and the packing holds no name or time. So whoever has the full files can
make the subset again, byte for byte. So it is with the mammals of WordNet. Their embedding is trained, without any
random number, but from machine to machine its last digits differ.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from fedbook.data.errors import BrokenFile
from fedbook.data.idx import read_idx, write_idx
from fedbook.data.lines import write_lines
from fedbook.data.mimic_benchmark import mimic3_from_benchmark
from fedbook.data.sources import MNIST_FILES
from fedbook.data.subset import SPLITS, subset_rows
from fedbook.data.wordnet import (
    UNPUBLISHED,
    mammal_rows,
    read_embedding,
    read_nouns,
    read_taxonomy,
)

SUMS = "SHA256SUMS"
MAMMALS, EMBEDDING, LICENCE = "mammals.txt.gz", "embedding.txt.gz", "LICENSE.txt"


def make_fashion_mnist(source: str | Path, out: str | Path) -> tuple[Path, ...]:
    """Writes the subset of the full Fashion-MNIST in ``source`` to ``out``; returns the four files.

    Raises: BrokenFile, FileNotFoundError.
    """
    source, out = Path(source), Path(out)
    made = []
    for split, (count, per_class) in SPLITS.items():
        images, labels = (name for name in MNIST_FILES if name.startswith(split))
        x = read_idx(source / images, (count, 28, 28))
        y = read_idx(source / labels, (count,))
        rows = subset_rows(y, per_class, split)
        out.mkdir(parents=True, exist_ok=True)
        for name, array in ((images, x[rows]), (labels, y[rows])):
            write_idx(out / name, array)
            made.append(out / name)
    return tuple(made)


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
    from fedbook.papers.prirfed.embedding import train_embedding

    out = Path(out)
    mammals = read_taxonomy(out / MAMMALS).without(UNPUBLISHED)
    points = train_embedding(mammals)
    rows = [f"{name} {x:.6f} {y:.6f}" for name, (x, y) in zip(mammals.names, points[:, 1:].tolist(), strict=True)]
    head = "The mammals of WordNet 3.0 in the hyperbolic plane: name, the two spatial coordinates on the hyperboloid."
    origin = "Made from mammals.txt.gz by fedbook.papers.prirfed.embedding.train_embedding."
    write_lines(out / EMBEDDING, [head, origin], rows)
    read_embedding(out / EMBEDDING, mammals.names)
    return out / EMBEDDING


def checksums(folder: str | Path) -> str:
    """The text of ``SHA256SUMS``: every file below ``folder`` but itself and what lies in ``results/``."""
    folder = Path(folder)
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    kept = [name for name in files if name != SUMS and not name.startswith("results/")]
    return "".join(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in kept)


def main(words: list[str]) -> int:
    """The command line of this module; returns the exit status."""
    makers = {"fashion_mnist": make_fashion_mnist, "wordnet_mammals": make_wordnet_mammals}
    made: tuple[Path, ...] = ()
    if len(words) == 3 and words[0] in makers:
        made = makers[words[0]](words[1], words[2])
    elif len(words) == 2 and words[0] == "wordnet_embedding":
        made = (make_wordnet_embedding(words[1]),)
    elif len(words) == 3 and words[0] == "mimic3":
        made = (mimic3_from_benchmark(words[1], words[2]),)
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
