"""Compressed messages in a wire format that is counted byte by byte: quantisers and sparse messages."""

from __future__ import annotations

from fedbook.compression.codec import (
    COMPRESSORS,
    AnyWidth,
    Codec,
    Compressor,
    UpperTriangle,
    compressor,
    triangle_wire,
)
from fedbook.compression.hexagonal import G2, Hexagonal, cell_area
from fedbook.compression.scalar import UniformScalar
from fedbook.compression.secure_sum import Summable
from fedbook.compression.sparse import RandomK, TopK, keep_columns
from fedbook.compression.wire import HEADER_BYTES

__all__ = [
    "COMPRESSORS", "AnyWidth", "G2", "HEADER_BYTES", "Codec", "Compressor", "Hexagonal", "RandomK", "Summable", "TopK",
    "UniformScalar", "UpperTriangle", "cell_area", "compressor", "keep_columns", "triangle_wire",
]  # fmt: skip
