"""Seconds and memory a round on one process when 1,000, 10,000, 100,000 and 1,000,000 clients take turns, 100 a round.

``python -m benchmarks.population [--clients 1000,10000] [--rounds 20] [--write FILE]``. FedAvg as the package runs it,
an MLP 784-64-10, 5 steps of batch 10 a client. A client holds 50 of 5,000 synthetic samples, so clients share samples:
what grows with their number is the table of who holds what. Each number of clients is a process of its own; memory is
the largest it ever had resident ("peak"), once the package was imported ("imported") and once the samples were there
("samples") before that; seconds are those of its one thread, the median over the rounds after the first, and "start"
is all from the partition to the first round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fedbook.federation import Federation, Rounds
from fedbook.learning.models import model
from fedbook.papers.fedavg import Config, FedAvg
from fedbook.partition import Partition
from fedbook.randomness import normal, stream

CLIENTS, COHORT, SAMPLES, OWN, BATCH = (1000, 10_000, 100_000, 1_000_000), 100, 5000, 50, 10
MEGABYTE = 10**6


def peak() -> int:
    """The most bytes this process ever had resident."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measure(clients: int, rounds: int) -> dict[str, Any]:
    """One number of clients, in this process: to be called once in a fresh one."""
    torch.set_num_threads(1)
    row = {"clients": clients, "imported_mb": peak() / MEGABYTE}
    x = normal((SAMPLES, 1, 28, 28), stream(0, "x")).float()
    y = torch.from_numpy(stream(0, "y").integers(0, 10, SAMPLES))
    row["samples_mb"] = peak() / MEGABYTE
    begun = time.process_time()
    # OWN consecutive samples from a random one on: drawing each alone would take longer than all else
    table = torch.from_numpy(stream(0, "first").integers(0, SAMPLES, (clients, 1)))
    table = (table + torch.arange(OWN)) % SAMPLES
    federation = Federation({"x": x, "y": y}, Partition(table, torch.full((clients,), OWN)))
    config = Config(local_epochs=1, batch_size=BATCH, clients_per_round=COHORT, lr=0.1)
    run = Rounds(FedAvg(config, model("mlp", (1, 28, 28), 10)), federation, rounds + 1)
    row["table_mb"] = table.numel() * table.element_size() / MEGABYTE
    row["start_seconds"] = time.process_time() - begun
    seconds = []
    for _ in range(rounds + 1):
        begun = time.process_time()
        run.step()
        seconds.append(time.process_time() - begun)
    row |= {"round_seconds": statistics.median(seconds[1:]), "peak_mb": peak() / MEGABYTE}
    return {name: round(value, 4) for name, value in row.items()}


def conditions() -> dict[str, Any]:
    """What the machine is and how busy it was."""
    load = round(os.getloadavg()[0], 1)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__}
    return {**machine, "threads": 1, "load_average": load}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default=",".join(map(str, CLIENTS)), help="numbers of clients in all")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--write", type=Path, help="a JSON file")
    parser.add_argument("--here", type=int, help=argparse.SUPPRESS)  # the number that this very process measures
    options = parser.parse_args(argv)
    if options.here is not None:
        print(json.dumps(measure(options.here, options.rounds)))
        return 0
    table = {"what": __doc__.splitlines()[0], "rounds": options.rounds, "cohort": COHORT, "machine": conditions()}
    table["rows"] = []
    print(f"{'clients':>9} {'start s':>8} {'round ms':>9} {'table MB':>9} {'samples MB':>11} {'peak MB':>8}")
    for clients in map(int, options.clients.split(",")):
        words = [sys.executable, "-m", "benchmarks.population", "--here", str(clients), "--rounds", str(options.rounds)]
        row = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
        table["rows"].append(row)
        print(
            f"{clients:9} {row['start_seconds']:8.2f} {1000 * row['round_seconds']:9.1f} {row['table_mb']:9.1f} "
            f"{row['samples_mb']:11.0f} {row['peak_mb']:8.0f}",
            flush=True,
        )
    table["machine"]["load_average_after"] = conditions()["load_average"]
    if options.write is not None:
        options.write.write_text(json.dumps(table, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
