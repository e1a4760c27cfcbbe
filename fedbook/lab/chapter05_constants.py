"""Chapter 5's constants: the sum at the end of Lemma 2, and where 64, 6 and 92 come from.

Errors are in units of sum_m H_m^2 G_m^2 |E_m|^2. Each function has the paper's steps beside the corrected ones.
"""

from __future__ import annotations

import math


def growth_sum(local_steps: int, start: float, added: float) -> dict[str, float]:
    """sum of A_i over i < Q for A_{i+1} = C A_i + D: added up, by the closed form, and with the printed exponents.

    ``start`` A_0, ``added`` D, C = 1 + 2 / Q. "printed" adds up (A.51), whose every term is one
    step late; (A.55) and (A.62) then state the right sum. Source: C-VFL, (A.46)-(A.65).
    """
    found = off_by_one(local_steps, start, added)
    c, q = 1 + 2 / local_steps, local_steps
    ratio = (c**q - 1) / (c - 1)
    closed = start * ratio + added / (c - 1) * (ratio - q)
    return {"added up": math.fsum(found["exact"]), "closed form": closed, "printed": math.fsum(found["printed"])}


def off_by_one(local_steps: int, start: float, added: float) -> dict[str, list[float]]:
    """A_0 .. A_{Q-1}: "exact" by the recursion, "corrected" by its closed form, "printed" as (A.51) has them.

    At the first local step after the exchange (A.51) gives A_0 where C A_0 + D is meant.
    Source: C-VFL, (A.50), (A.51).
    """
    c, exact = 1 + 2 / local_steps, [start]
    for _ in range(local_steps - 1):
        exact.append(c * exact[-1] + added)

    def closed(i: int) -> float:
        return c**i * start + added * (c**i - 1) / (c - 1)

    steps = range(local_steps)
    return {"exact": exact, "corrected": [closed(i) for i in steps], "printed": [closed(i - 1) for i in steps]}


def lemma_2_constants(local_steps: int) -> dict[str, float]:
    """The factor of the compression term in Lemma 2, from the sharpest to what is printed: 64 Q^3.

    "added up" has A_0 = 1, D = 8 (1 + Q); the paper's own last step is 16 Q^2 (1 + Q) + 4 Q, at most 36 Q^3.
    Source: C-VFL, (A.69), (A.70).
    """
    q = local_steps
    added = growth_sum(q, 1.0, 8.0 * (1 + q))["added up"]
    paper = 16 * q**2 * (1 + q) + 4 * q
    return {"added up": added, "16 Q^2 (1 + Q) + 4 Q": paper, "36 Q^3": 36 * q**3, "64 Q^3": 64 * q**3}


def descent_bracket(local_steps: int, lr: float, smooth: float, smooth_m: float, corrected: bool = True) -> float:
    """1 - 2 L Q eta - 16 Q^2 L_m^2 eta^2 - 32 Q^3 L_m^2 L eta^3, which must be at least 3/4; printed with 16 for 32.

    At the cap 1 - 1/8 - 1/16 - 1/128. Source: C-VFL, (A.82), (A.83).
    """
    a, b = _lengths(local_steps, lr, smooth, smooth_m)
    return 1 - 2 * a - 16 * b**2 - (32 if corrected else 16) * a * b**2


def noise_factor(local_steps: int, lr: float, smooth: float, smooth_m: float, corrected: bool = True) -> float:
    """What stands before Q L eta sigma^2 / B in (A.91); 6 in the theorem.

    ``corrected``: with 16 Q^3 L L_m^2 eta^3, and before Q max(L, L_m) eta; as printed it exceeds 6 if L_m >> L.
    Source: C-VFL, (A.91), (A.92).
    """
    a, b = _lengths(local_steps, lr, smooth, smooth_m)
    if corrected:
        return 8 / 3 * (a + 8 * b**2 + 16 * a * b**2) / max(a, b)
    return 8 / 3 * (a + 8 * b**2 + 8 * a * b**2) / a


def compression_factor(local_steps: int, lr: float, smooth: float, lemma: float = 64.0) -> float:
    """What stands before the compression term of (A.91): 8/3 * lemma / 2 * (1 + 2 L Q eta); 92 in the theorem.

    With 64 it is 96 at the cap, above 92; with the 36 that Lemma 2 allows, 54.
    """
    a, _ = _lengths(local_steps, lr, smooth, smooth)
    return 8 / 3 * lemma / 2 * (1 + 2 * a)


def constants_of_theorem_4_2(local_steps: int = 5, ratio: float = 3.0) -> dict[str, tuple[float, float]]:
    """At the cap, for L_m = ``ratio`` L: the number found and the number it is compared with."""
    q = local_steps
    lr = 1 / (16 * q * max(1.0, ratio))
    at_cap = 1 / (16 * q)  # for L >= L_m
    return {
        "descent, printed": (descent_bracket(q, at_cap, 1.0, 1.0, False), 3 / 4),
        "descent, corrected": (descent_bracket(q, at_cap, 1.0, 1.0), 3 / 4),
        "noise, printed": (noise_factor(q, lr, 1.0, ratio, False), 6.0),
        "noise, corrected": (noise_factor(q, lr, 1.0, ratio), 6.0),
        "compression, 86 (1 + 2 L Q eta)": (86 * (1 + 2 * q * at_cap), 92.0),
        "compression, from 64": (compression_factor(q, at_cap, 1.0), 92.0),
        "compression, from 36": (compression_factor(q, at_cap, 1.0, 36.0), 92.0),
    }


def _lengths(local_steps: int, lr: float, smooth: float, smooth_m: float) -> tuple[float, float]:  # Q eta L, Q eta L_m
    way = local_steps * lr
    return way * smooth, way * smooth_m
