"""One picture file (PNG, JPEG) as a small square of bytes, read as if its maker were hostile.

A picture of few bytes can promise a surface of gigabytes: what it promises is looked at before anything is unpacked.
Only the two formats that are named are ever tried.
"""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedbook.data.errors import BrokenFile

MOST_BYTES = 2**25  # of a file
MOST_PIXELS = 2**26  # 200 MB in colour
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK")  # eight bits a channel or fewer


def read_picture(path: str | Path, side: int, colour: bool) -> np.ndarray:
    """The middle square of a picture, made ``side`` pixels wide: each pixel the mean of those it covers.

    Transparent parts are laid on white. Shapes: uint8 [C, side, side], C 3 with ``colour``, else 1.
    Raises: BrokenFile (a ``ValueError``; names the file and what is wrong), FileNotFoundError.
    """
    from PIL import Image

    path = Path(path)
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise BrokenFile(path, f"refused: has {size:,} bytes; at most {MOST_BYTES:,} are read")
    damage = (SyntaxError, ValueError, TypeError, IndexError, EOFError, struct.error, zlib.error)
    damage += (Image.DecompressionBombError, Image.DecompressionBombWarning)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.filterwarnings("ignore", category=UserWarning)  # odd metadata are none of our business
            with Image.open(path, formats=("PNG", "JPEG")) as picture:
                return _square(path, picture, side, "RGB" if colour else "L")
    except BrokenFile:
        raise
    except (*damage, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk, not the file
            raise
        raise BrokenFile(path, f"is no whole PNG or JPEG picture ({error})") from error


def read_pictures(paths: Sequence[Path], side: int, colour: bool) -> np.ndarray:
    """Each of them by ``read_picture``, one after another. Shapes: uint8 [N, C, side, side]. Raises: as that."""
    x = np.empty((len(paths), 3 if colour else 1, side, side), np.uint8)
    for i, path in enumerate(paths):
        x[i] = read_picture(path, side, colour)
    return x


def _square(path: Path, picture, side: int, mode: str) -> np.ndarray:
    from PIL import Image

    width, height = picture.size
    if width * height > MOST_PIXELS:
        raise BrokenFile(path, f"refused: promises {width:,} x {height:,} pixels; at most {MOST_PIXELS:,} are read")
    if picture.mode not in MODES:
        raise BrokenFile(path, f"has pixels of mode {picture.mode!r}; allowed are {', '.join(MODES)}")
    # a JPEG can be unpacked at a half, a quarter or an eighth of its size, which saves most of the time
    picture.draft(mode, (2 * side, 2 * side))
    if picture.mode in ("LA", "PA", "RGBA") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    picture = picture.convert(mode)
    factor = round(width / picture.width)  # 1, 2, 4 or 8; the last column and row may cover less
    edge = min(width, height)
    left, top = (width - edge) / 2, (height - edge) / 2
    square = [place / factor for place in (left, top, left + edge, top + edge)]
    picture = picture.resize((side, side), Image.Resampling.BOX, square)
    pixels = np.asarray(picture)
    return pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)
