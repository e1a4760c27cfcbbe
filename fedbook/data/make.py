"""Makes the data that ship: ``python -m fedbook.data.make fashion_mnist SOURCE_DIR OUT_DIR`` and ``... sums DATA_DIR``.

The subset of Fashion-MNIST is a function of the full public files alone: which rows are kept follows from a keyed
stream, their order is that of the full set, and the packing holds no name or time. So whoever has the full files can
make the subset again, byte for byte.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from fedbook.data.idx import read_idx, write_idx
from fedbook.data.sources import MNIST_FILES
from fedbook.data.subset import SPLITS, subset_rows

SUMS = "SHA256SUMS"


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


def checksums(folder: str | Path) -> str:
    """The text of ``SHA256SUMS``: every file below ``folder`` but itself and what lies in ``results/``."""
    folder = Path(folder)
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    kept = [name for name in files if name != SUMS and not name.startswith("results/")]
    return "".join(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in kept)


def main(words: list[str]) -> int:
    """The command line of this module; returns the exit status."""
    if len(words) == 3 and words[0] == "fashion_mnist":
        for path in make_fashion_mnist(words[1], words[2]):
            print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path}")
        return 0
    if len(words) == 2 and words[0] == "sums":
        (Path(words[1]) / SUMS).write_text(checksums(words[1]), encoding="utf-8")
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
