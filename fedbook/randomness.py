"""Keyed randomness: ``(seed, purpose, round, client)`` names a stream of random numbers.

No generator is ever carried along or stored. Whoever needs numbers asks for the stream of a key and
gets the same numbers on every machine, in a batch or in a loop, whatever else was drawn before. So a
resumed run continues exactly, and adding a client, a plot or a method changes nobody else's numbers.

The streams are NumPy's Philox (counter based, 128-bit key = a hash of the names). PyTorch's CPU
generator keeps only 32 bits of its seed: with 100,000 keys two of them would probably collide, and
two clients would add the same "independent" noise.
"""

from __future__ import annotations

import hashlib
import secrets

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments


def stream(seed: int | None, purpose: str, round: int = -1, client: int = -1) -> np.random.Generator:
    """A fresh generator for the key ``(seed, purpose, round, client)``; -1 means "none".

    ``seed=None`` draws the key from the operating system: numbers nobody can repeat or predict.
    Raises: TypeError, ValueError for a seed that is no whole number in ``[0, 2**63)``.
    """
    if not isinstance(purpose, str) or not purpose:
        raise arguments.wrong(TypeError, "purpose", purpose, "a non-empty word")
    if seed is None:
        return np.random.Generator(np.random.Philox(key=secrets.randbits(128)))
    seed = arguments.integer("seed", seed, 0, 2**63 - 1)
    round = arguments.integer("round", round, -1)
    client = arguments.integer("client", client, -1)
    text = f"{seed}/{purpose}/{round}/{client}".encode()
    key = int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))


def repeated(purpose: str, attempt: int) -> str:
    """The purpose of the draws of a round done again after ``attempt`` releases that stay: fresh draws, not the same.

    A second release under fresh noise is accounted as one of its own, so cohort and records must be drawn anew too.
    """
    return purpose if attempt == 0 else f"{purpose}, attempt {attempt}"


def keyed(purpose: str, key: str) -> str:
    """The purpose of privacy noise in the run that ``key`` names (``""``: in any): other runs draw other numbers.

    Two releases under one noise at two scales, or of two sums, give the sums away to whoever subtracts them.
    """
    return f"{purpose} of {key}" if key else purpose


def normal(shape: tuple[int, ...], rng: np.random.Generator, like: Tensor | None = None) -> Tensor:
    """Standard normal numbers of ``shape``, drawn in float64 on the CPU, then cast and moved as ``like``.

    Raises: TypeError, ValueError.
    """
    shape = tuple(arguments.integer("shape", n, 0) for n in _sequence(shape))
    if like is not None:
        arguments.tensor("like", like, kind="float", finite=False)
    drawn = torch.from_numpy(_generator(rng).standard_normal(shape))
    return drawn if like is None else drawn.to(device=like.device, dtype=like.dtype)


def torch_seed(rng: np.random.Generator) -> int:
    """A seed for code that can only be driven by PyTorch's global generator (model initialisation).

    Raises: TypeError.
    """
    return int(_generator(rng).integers(0, 2**32))


def _generator(rng: np.random.Generator) -> np.random.Generator:
    if not isinstance(rng, np.random.Generator):
        raise arguments.wrong(TypeError, "rng", rng, "a NumPy generator (stream(...) makes one)")
    return rng


def _sequence(shape: tuple[int, ...]) -> tuple[int, ...]:
    if not isinstance(shape, tuple | list):
        raise arguments.wrong(TypeError, "shape", shape, "a tuple of whole numbers")
    return tuple(shape)
