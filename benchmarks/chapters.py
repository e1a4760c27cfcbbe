"""Times what the chapters' algorithms are made of: ``python -m benchmarks.chapters [--tiny] [--write FILE]``.

Each beside the plain way to the same result: FedSC's matrices beside one product for each client, CKA beside its Gram
matrices of L x L, a private round of DP2-FedSAM (head and SAM body) beside the same round client by client, and a round
of DP-RSVRG beside one of DP-RSGD, which takes fewer gradients (not the same result: what the correction costs).

One thread; the two take turns, so that a busy machine disturbs them alike; milliseconds of processor time, which
waiting for a turn does not lengthen, median and quartiles.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.population import conditions
from fedbook.experiment import commit, plan
from fedbook.papers import paper
from fedbook.papers.fedsc.spectral import correlation
from fedbook.papers.hetero_ssfl.cka import gram_cka, linear_cka
from fedbook.randomness import normal, stream

Pair = tuple[str, str, Callable[[], Any], Callable[[], Any]]  # ours and the plain way, in words and as functions


def pairs(tiny: bool) -> dict[str, Pair]:
    """What is measured, by name."""
    samples, width, length = (8, 4, 20) if tiny else (512, 256, 5000)
    z = normal((10, samples, 2, width), stream(0, "chapters z")).float()
    a, b = (normal((length, width), stream(0, f"chapters {name}")) for name in "ab")
    private = {"clients": 6, "train_samples": 120} if tiny else {"clients": 50, "train_samples": 5000}
    agents = {"agents": 3, "samples": 60} if tiny else {"agents": 50, "samples": 5000}
    sam = plan(paper("dp2_fedsam"), "dp2-fedsam", "mnist", changes=private | {"evaluate_every": 10**6}, device="cpu")
    agents |= {"evaluate_every": 10**6, "rounds": 1000}
    noisy, step = (
        plan(paper("prirfed"), way, changes=agents, device="cpu").rounds().step for way in ("dp-rsvrg", "dp-rsgd")
    )
    rounds = [plan_.rounds(how=how) for plan_, how in ((sam, None), (sam, "loop"))]
    return {
        f"FedSC's matrices, 10 clients, {samples} images in two views, width {width}": (
            "correlation of each client",
            "a product of rows",
            lambda: [correlation(one) for one in z],
            lambda: [plain_correlation(one) for one in z],
        ),
        f"CKA of L = {length:,} images, widths {width}": (
            "the cheaper form",
            "Gram matrices",
            lambda: linear_cka(a, b),
            lambda: gram_cka(a @ a.mT, b @ b.mT),
        ),
        f"DP2-FedSAM, a round of {private['clients']} clients, head and SAM body": (
            "as committed",
            "client by client",
            rounds[0].step,
            rounds[1].step,
        ),
        f"DP-RSVRG, a round of {agents['agents']} agents": ("DP-RSVRG", "DP-RSGD", noisy, step),
    }


def plain_correlation(z: Tensor) -> Tensor:
    """R as it is written. Shapes: z [B, V, H] -> [H, H]."""
    rows = z.flatten(0, 1)
    return rows.mT @ rows / len(rows)


def measure(pair: Pair, repeats: int) -> dict[str, Any]:
    """Figures of both, in turn; the first run of each is not counted."""
    took: dict[str, list[float]] = {pair[0]: [], pair[1]: []}
    for repeat in range(repeats + 1):
        for name, function in zip(pair[:2], pair[2:], strict=True):
            begun = time.process_time()
            function()
            if repeat:
                took[name].append(1000 * (time.process_time() - begun))
    return {name: figures(values) for name, values in took.items()}


def figures(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return {"median": round(middle, 2), "low": round(low, 2), "high": round(high, 2)}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="sizes to see that it runs")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--write", type=Path, help="a JSON file")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    what = __doc__.splitlines()[0].split(":")[0] + "."
    table = {"what": what, "repeats": options.repeats, "commit": commit(), "machine": conditions(), "rows": []}
    for name, pair in pairs(options.tiny).items():
        row = {"name": name, "ms": measure(pair, options.repeats)}
        table["rows"].append(row)
        ms = "   ".join(
            f"{way} {one['median']:.1f} ({one['low']:.1f} to {one['high']:.1f})" for way, one in row["ms"].items()
        )
        print(f"{name}: {ms}", flush=True)
        table["machine"]["load_average_after"] = conditions()["load_average"]
        if options.write is not None:
            options.write.write_text(json.dumps(table, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
