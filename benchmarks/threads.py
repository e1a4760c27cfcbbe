"""Times small training steps by how threads wait for each other: ``python -m benchmarks.threads``.

Each way in a process of its own, on an idle machine and beside as many busy processes as there are cores; the median
of several repetitions, in milliseconds a step. The batch is large enough for PyTorch to share it out among threads.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

WAYS = {
    "threads that spin": {},
    "threads that sleep": {"OMP_WAIT_POLICY": "PASSIVE"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
SAYING = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
STEPS = """
import statistics, sys, time, torch
steps, repeats = map(int, sys.argv[1:])
x, y = torch.randn(256, 784), torch.randint(10, (256,))
net = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimiser, took = torch.optim.SGD(net.parameters(), 0.1), []
for repeat in range(repeats + 1):  # the first one warms up
    begun = time.perf_counter()
    for step in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    took.append((time.perf_counter() - begun) / steps)
print(statistics.median(took[1:]))
"""


def seconds(way: str, busy_processes: int = 0, steps: int = 20, repeats: int = 5) -> float:
    """Seconds a step, beside so many processes that are never idle."""
    quiet = {name: value for name, value in os.environ.items() if name not in SAYING}
    with _busy(busy_processes):
        done = subprocess.run(
            [sys.executable, "-c", STEPS, str(steps), str(repeats)],
            env=quiet | WAYS[way], capture_output=True, text=True, check=True,
        )  # fmt: skip
    return float(done.stdout)


@contextmanager
def _busy(count: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    cores = os.cpu_count() or 1
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    print(f"{cores} cores, load before {load}; milliseconds a step")
    print(f"{'':20} {'as it is':>9} {f'beside {cores}':>9}")
    for way in WAYS:
        print(f"{way:20} {1e3 * seconds(way):9.2f} {1e3 * seconds(way, cores):9.2f}", flush=True)


if __name__ == "__main__":
    main()
