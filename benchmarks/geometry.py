"""Times Exp, Log, distance and transport beside geoopt and pymanopt: ``python -m benchmarks.geometry [--write FILE]``.

All in one process, one thread, float64, without derivatives. The libraries alternate within a repetition, so that a
busy machine disturbs them alike; the median counts, in microseconds of processor time a call. A rival's figure counts
for the ratio if its result agrees with ours. Where it computes something else it stands in brackets: a projection or
the identity as a transport, one distance for a whole product of manifolds. pymanopt has no hyperboloid; its batch of
spheres is ``Oblique``, whose points are columns, and gets the same rows as a transposed view.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.population import conditions
from fedbook.experiment import commit
from fedbook.geometry import SPD, Hyperboloid, Manifold, Sphere
from fedbook.randomness import stream

Functions = dict[str, Callable[[], object]]
OPERATIONS = ("exp", "log", "dist", "transport")
SIZES = ((Sphere(), 3), (Sphere(), 25), (Sphere(), 784), (SPD(), 2), (SPD(), 3), (SPD(), 9), (SPD(), 28))
SIZES += ((Hyperboloid(), 3), (Hyperboloid(), 25), (Hyperboloid(), 784))
BATCHES = (1, 10, 100, 1000, 10_000, 100_000)


def rivals(manifold: Manifold, x: Tensor, y: Tensor, u: Tensor) -> dict[str, Functions]:
    """What the other libraries offer for these points, by operation. Raises: ModuleNotFoundError."""
    import geoopt
    import pymanopt.manifolds

    kind = {"unit sphere": geoopt.SphereExact, "hyperboloid": geoopt.Lorentz}
    other = kind.get(manifold.name, geoopt.SymmetricPositiveDefinite)()
    functions: dict[str, Functions] = {
        "exp": {"geoopt": lambda: other.expmap(x, u)},
        "log": {"geoopt": lambda: other.logmap(x, y)},
        "dist": {"geoopt": lambda: other.dist(x, y)},
        "transport": {"geoopt": lambda: other.transp(x, y, u)},
    }
    if isinstance(manifold, Hyperboloid):
        return functions
    if isinstance(manifold, Sphere):
        product = pymanopt.manifolds.Oblique(x.shape[-1], len(x))
    else:
        product = pymanopt.manifolds.SymmetricPositiveDefinite(x.shape[-1], k=len(x))
    columns = isinstance(manifold, Sphere)

    def on_arrays(function: Callable) -> Callable[..., object]:
        """The function of arrays as a function of tensors, without copies."""
        return lambda *tensors: function(*((t.mT if columns else t).numpy() for t in tensors))

    exp, log, dist, transport = map(on_arrays, (product.exp, product.log, product.dist, product.transport))
    functions["exp"]["pymanopt"] = lambda: exp(x, u)
    functions["log"]["pymanopt"] = lambda: log(x, y)
    functions["dist"]["pymanopt"] = lambda: dist(x, y)
    functions["transport"]["pymanopt"] = lambda: transport(x, y, u)
    return functions


def measure(functions: Functions, repeats: int, least: float) -> dict[str, float]:
    """Median microseconds of one call: ``repeats`` turns, each of as many calls as take ``least`` seconds."""
    counts, times = {}, {name: [] for name in functions}
    for name, function in functions.items():
        function()
        begun = time.process_time()
        function()
        counts[name] = max(1, round(least / max(time.process_time() - begun, 1e-7)))
    order = list(functions.items())
    for _ in range(repeats):
        order.append(order.pop(0))  # who comes first finds a colder cache
        for name, function in order:
            begun = time.process_time()
            for _ in range(counts[name]):
                function()
            times[name].append(1e6 * (time.process_time() - begun) / counts[name])
    return {name: statistics.median(values) for name, values in times.items()}


def agrees(ours: Tensor, theirs: object) -> bool:
    """Whether the rival's result is ours up to 1e-6, perhaps as columns."""
    theirs = torch.as_tensor(theirs).to(ours.dtype)
    candidates = [t for t in (theirs, theirs.mT if theirs.ndim == 2 else theirs) if t.shape == ours.shape]
    return any(torch.allclose(ours, t, rtol=1e-6, atol=1e-6) for t in candidates)


def rows(sizes: tuple[tuple[Manifold, int], ...], batches: tuple[int, ...], repeats: int) -> Iterator[dict]:
    """One row for each manifold, size, batch and operation: microseconds by library and which rivals count."""
    for manifold, size in sizes:
        for batch in batches:
            if batch * size > 1e8 or (manifold.point_ndim == 2 and batch * size**3 > 3e8):
                continue
            rng = stream(0, "geometry benchmark", client=size)
            x, y = manifold.random_point(size, rng, (batch,)), manifold.random_point(size, rng, (batch,))
            u = manifold.log(x, manifold.random_point(size, rng, (batch,)))
            other = rivals(manifold, x, y, u)
            ours = {
                "exp": lambda m=manifold, x=x, u=u: m.exp(x, u),
                "log": lambda m=manifold, x=x, y=y: m.log(x, y),
                "dist": lambda m=manifold, x=x, y=y: m.dist(x, y),
                "transport": lambda m=manifold, x=x, y=y, u=u: m.transport(x, y, u),
            }
            for name in OPERATIONS:
                result = ours[name]()
                counted = [library for library, f in other[name].items() if agrees(result, f())]
                begun = time.process_time()
                ours[name]()
                slow = time.process_time() - begun > 0.1
                times = measure({"fedbook": ours[name]} | other[name], 3 if slow else repeats, 0.002)
                yield {
                    "manifold": f"{type(manifold).__name__}({size})",
                    "batch": batch,
                    "operation": name,
                    "times": times,
                    "counted": counted,
                }


def ratio(row: dict) -> float | None:
    """Our time over that of the fastest rival that computes the same; none if there is none."""
    best = min((row["times"][library] for library in row["counted"]), default=None)
    return None if best is None else row["times"]["fedbook"] / best


def line(row: dict) -> str:
    """One line of the table."""
    cells = []
    for library in ("fedbook", "geoopt", "pymanopt"):
        value = row["times"].get(library)
        text = "-" if value is None else f"{value:.1f}"
        cells.append(f"({text})" if value is not None and library not in ("fedbook", *row["counted"]) else text)
    slowdown = ratio(row)
    shown = "-" if slowdown is None else f"{slowdown:.2f}"
    start = f"{row['manifold']:<17}{row['batch']:>7} {row['operation']:<10}"
    return start + "".join(f"{cell:>14}" for cell in cells) + f"{shown:>8}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.geometry", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="batches of 1 to 1,000, fewer repetitions: half a minute")
    parser.add_argument("--batches", help="how many points, comma-separated, instead")
    parser.add_argument("--write", type=Path, help="a JSON file")
    options = parser.parse_args(arguments)
    batches = BATCHES[:4] if options.quick else BATCHES
    if options.batches:
        batches = tuple(map(int, options.batches.split(",")))
    try:
        import geoopt  # noqa: F401
        import pymanopt  # noqa: F401
    except ModuleNotFoundError as missing:
        print(
            f"The benchmark needs geoopt and pymanopt: {missing}. Install them: pip install geoopt pymanopt",
            file=sys.stderr,
        )
        return 1
    torch.set_num_threads(1)
    print(
        f"{'microseconds':<17}{'batch':>7} {'operation':<10}"
        + "".join(f"{n:>14}" for n in ("fedbook", "geoopt", "pymanopt"))
        + f"{'ratio':>8}"
    )
    machine, measured = conditions(), []
    with torch.no_grad():
        for row in rows(SIZES, batches, 5 if options.quick else 11):
            print(line(row), flush=True)
            measured.append(row)
    if options.write is not None:
        machine["load_average_after"] = conditions()["load_average"]
        table = {"what": __doc__.splitlines()[0].split(":")[0] + ".", "commit": commit(), "machine": machine}
        table |= {"versions": {name: version(name) for name in ("geoopt", "pymanopt")}, "rows": measured}
        options.write.write_text(json.dumps(table, indent=1) + "\n")
    judged = [(ratio(row), row) for row in measured if ratio(row) is not None and row["batch"] >= 100]
    slower = sum(value > 1.1 for value, _ in judged)
    print(f"Batches of 100 and more: {len(judged)} comparisons, {slower} more than 10 % slower than the best rival.")
    if judged:
        worst, row = max(judged, key=lambda pair: pair[0])
        print(f"Largest ratio {worst:.2f}: {row['manifold']}, batch {row['batch']}, {row['operation']}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
