"""Run by test_kill.py: kill -9 runs at some moments, resume each, compare with the run nobody killed.

Processes are forked from one that has imported PyTorch already. Prints one JSON line.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from fedbook.federation import Federation, Rounds
from fedbook.federation.tree import flatten
from fedbook.learning.models import model
from fedbook.papers.fedavg import Config, FedAvg, LocalOnly
from fedbook.partition import iid
from fedbook.randomness import normal, stream

torch.set_num_threads(1)


def fresh(path, kind):
    x = normal((400, 1, 8, 8), stream(0, "x")).float()
    y = torch.from_numpy(stream(0, "y").integers(0, 4, 400))
    config = Config(local_epochs=2, batch_size=5, clients_per_round=6, momentum=0.9, sampling="poisson", lr=0.05)
    federation = Federation({"x": x, "y": y}, iid(400, 20, 0))
    algorithm, kept = kind(config, model("mlp", (1, 8, 8), 4)), {"path": path, "save_every": 1, "resume": True}
    return Rounds(algorithm, federation, 25, seeds=(0, 1), **kept)


def digest(rounds):
    h = hashlib.sha256(json.dumps([{**entry, "seconds": 0} for entry in rounds.history.state()]).encode())
    for tree in (rounds.server, rounds.clients):
        for name, leaf in sorted(flatten(tree).items()):
            h.update(name.encode() + leaf.numpy().tobytes())
    return h.hexdigest()


def child(work):
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(0)
    except BaseException as error:
        print(error, file=sys.stderr)
        os._exit(1)


def finish(path, kind, out):
    rounds = fresh(path, kind)
    begun = rounds.t
    list(rounds)
    out.write_text(json.dumps([begun, digest(rounds)]))


def main(folder, moments):
    folder, moments, report = Path(folder), int(moments), []
    out = folder / "out.json"
    for kind in (FedAvg, LocalOnly):  # what PyTorch loads at the first vectorised step is paid once, before the forks
        next(iter(fresh(folder / f"warm.{kind.name}.pt", kind)))
    for kind in (FedAvg, LocalOnly):
        begun = time.perf_counter()
        os.waitpid(child(lambda kind=kind: finish(folder / f"{kind.name}.whole.pt", kind, out)), 0)
        seconds = time.perf_counter() - begun
        _, expected = json.loads(out.read_text())
        for moment in range(moments):
            path = folder / f"{kind.name}.{moment}.pt"
            pid = child(lambda path=path, kind=kind: list(fresh(path, kind)))
            time.sleep(seconds * (moment + 1) / (moments + 1))
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            out.unlink()
            os.waitpid(child(lambda path=path, kind=kind: finish(path, kind, out)), 0)
            resumed_at, found = json.loads(out.read_text())
            report.append({"killed": os.WIFSIGNALED(status), "resumed_at": resumed_at, "same": found == expected})
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
