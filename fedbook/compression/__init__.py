"""Compressed messages in a wire format that is counted byte by byte: quantisers and sparse messages."""

from __future__ import annotations

from fedbook.compression.codec import Codec, Compressor, compressor
from fedbook.compression.hexagonal import Hexagonal
from fedbook.compression.lattice import G2, cell_area
from fedbook.compression.scalar import UniformScalar
from fedbook.compression.sparse import RandomK, TopK, keep_columns
from fedbook.compression.wire import HEADER_BYTES

__all__ = [
    "G2",
    "HEADER_BYTES",
    "Codec",
    "Compressor",
    "Hexagonal",
    "RandomK",
    "TopK",
    "UniformScalar",
    "cell_area",
    "compressor",
    "keep_columns",
]
