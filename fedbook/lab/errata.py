"""A chapter's errata as text: statements, each with a witness that returns the number found and the one promised."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Erratum = tuple[str, Callable[[], tuple[float, float]]]


def errata_text(errata: Sequence[Erratum], width: int = 10) -> str:
    """One line an erratum: what is promised (infinity is shown as "not 0"), what the witness gives, the statement."""
    lines = [f"{'promised':>{width}} {'found':>10}  statement"]
    for statement, witness in errata:
        measured, promised = witness()
        shown = "not 0" if math.isinf(promised) else f"{promised:.4g}"
        lines.append(f"{shown:>{width}} {measured:>10.4g}  {statement}")
    return "\n".join(lines)
