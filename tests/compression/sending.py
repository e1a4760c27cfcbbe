"""Generators of a message, and the round trip through buffers."""

from fedbook.randomness import stream


def rngs(rows, word="compression"):
    return [stream(1, word, client=r) for r in range(rows)]


def round_trip(compressor, x, word="compression"):
    return compressor.decode(compressor.encode(x, rngs(len(x), word)), x)
