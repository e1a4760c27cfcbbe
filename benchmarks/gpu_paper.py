"""The papers at their own size on a GPU, in pieces of nine minutes: ``make gpu-paper`` (``python -m benchmarks.gpu_paper``).

Every entry of ORDER is a ``fedbook run ... --profile paper --device cuda``, in the order of what a reader gains by it:

1. DP2-FedSAM, Table II, CIFAR-10, 1,000 clients of two classes, epsilon 1: the method, its rivals, its controls
2. FedSC, CIFAR-10, ResNet-20: the method against FedAvg+SC and all data in one place
3. Hetero-SSFL, CIFAR-10, ResNet-18 and 34: the method against FedBYOL, every client alone, and its controls
4. C-VFL, CIFAR-10 in quadrants, ResNet-18: without compression, then the compressors at 2 bits

A call takes the first entry that is not done, ends it by SIGTERM (the run saves its last whole round) before the budget
is spent, and says what is done and left; the next call goes on. Checkpoints lie in ``--state``; what was run (command,
pieces with seconds, device, torch, commit) and each final result in ``gpu_paper.json`` of ``--out``. The data are looked
for as always (FEDBOOK_DATA). ``--tiny``: digits on the CPU by the same machinery, into a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import ROOT, stamp
from fedbook import outputs
from fedbook.data.fetch import verify

PROBLEM, TABLE = "cifar10", "gpu_paper.json"
PRIVATE = (
    "dp2-fedsam",
    "centaur",
    "dp-fedsam",
    "dp-fedavg",
    "dp-fedsam-ft",
    "dp-fedavg-ft",
    "frozen-body",
    "noise-only",
)
ORDER = (
    *(f"dp2_fedsam --method {method}" for method in (*PRIVATE, "local-only")),
    *(f"fedsc --method {method}" for method in ("fedsc", "fedavg-sc", "centralized-sc", "random-encoder")),
    *(f"hetero_ssfl --method {method}" for method in ("hetero-ssfl", "fedbyol", "local-ssl")),
    *(f"hetero_ssfl --method {method}" for method in ("alignment-pass-only", "random-encoder")),
    "cvfl --method vfl",
    *(f"cvfl --method c-vfl --set compressor={word}" for word in ("scalar", "hex", "topk")),
)
TINY = (
    "fedavg --method fedavg --set rounds=60 --set local_epochs=20",
    "dp2_fedsam --method dp2-fedsam --set rounds=3",
)
STOP, LEAST = 60, 60  # seconds kept for ending a run; seconds of work that are worth loading the data for
clock = time.monotonic


def commands(tiny: bool) -> dict[str, list[str]]:
    """The arguments of ``fedbook`` by the name of the entry, in their order."""
    where = ["--problem", "digits", "--device", "cpu"] if tiny else ["--problem", PROBLEM, "--device", "cuda"]
    profile = [] if tiny else ["--profile", "paper"]
    lines = TINY if tiny else ORDER
    return {
        line.replace(" --method", "").replace(" --set", ""): ["run", *line.split(), *where, *profile] for line in lines
    }


def rounds(folder: Path) -> int:
    """How many rounds a run has logged."""
    lines = (folder / "rounds.csv").read_text().splitlines() if (folder / "rounds.csv").exists() else []
    return int(lines[-1].split(",")[0]) if len(lines) > 1 else 0


def go_on(command: list[str], folder: Path, end: float) -> int:
    """Runs a command until it is done or the clock says ``end``; its exit status."""
    resume = ["--resume"] if (folder / "checkpoint.pt").exists() else []
    words = [sys.executable, "-m", "fedbook", *command, "--out", str(folder), *resume]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=ROOT)
    try:
        while child.poll() is None and clock() < end:
            time.sleep(0.2)
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(STOP - 15)
            except subprocess.TimeoutExpired:  # the checkpoint of the round before stands
                child.kill()
    return child.wait()


def data_files() -> dict[str, str]:
    """Whether the data are there and the published ones, file by file."""
    return {file.path: file.state for file in verify(PROBLEM).files}


def missing() -> list[str]:
    """What the paper profiles need and do not find."""
    found = [] if torch.cuda.is_available() else ["a GPU that PyTorch finds"]
    absent = [path for path, state in data_files().items() if state == "missing"]
    return found + [f"{path} of {PROBLEM}, in the folder that FEDBOOK_DATA names" for path in absent]


def piece(tiny: bool, state: Path, out: Path, end: float) -> tuple[list[str], list[str]]:
    """Goes on with what is not done until ``end``; the entries that are left, and those that failed now."""
    left, failed, data = [], [], {} if tiny else data_files()
    for name, command in commands(tiny).items():
        table: dict[str, Any] = outputs.read(out / TABLE) or {}
        entry, folder = table.get(name, {"pieces": []}), state / name.replace(" ", "_")
        if "result" in entry and entry["command"] == command:
            print(f"done  {name}")
            continue
        if clock() > end - STOP - LEAST:
            print(f"left  {name}, after {rounds(folder)} rounds")
            left.append(name)
            continue
        before, begun = rounds(folder), clock()
        status = go_on(command, folder, end - STOP)
        ran = {"from": before, "to": rounds(folder), "seconds": round(clock() - begun, 1), "status": status}
        entry |= {"command": command, "pieces": [*entry["pieces"], ran | stamp() | {"data": data}]}
        if status in (0, 3):  # 3: it diverged or stopped early, which is a result
            entry["result"] = outputs.read(folder / "result.json")
            entry["settings"] = outputs.read(folder / outputs.IDENTITY)
        else:
            left.append(name)
            if clock() < end - STOP:  # nobody ended it
                failed.append(name)
        outputs.write(out / TABLE, json.dumps(table | {name: entry}, indent=1) + "\n")
        word = "done" if name not in left else "FAILED" if name in failed else "left"
        print(f"{word:5} {name}, rounds {ran['from']} to {ran['to']} in {ran['seconds']} s", flush=True)
    return left, failed


def main(argv: list[str] | None = None) -> int:
    """One piece; 0 if nothing went wrong, 1 if an entry failed, 2 if something is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=540, help="seconds this call may take; default 540")
    parser.add_argument("--state", type=Path, default=ROOT / "gpu-paper", help="folder of the checkpoints")
    parser.add_argument("--out", type=Path, default=ROOT / "data" / "results", help="folder of gpu_paper.json")
    parser.add_argument("--tiny", action="store_true", help="digits on the CPU; without --out in a temporary folder")
    options = parser.parse_args(argv)
    end = clock() + options.budget
    if not options.tiny and (absent := missing()):
        print("missing:", *absent, sep="\n  ")
        return 2
    if options.tiny and options.out == parser.get_default("out"):
        options.out = Path(tempfile.mkdtemp(prefix="fedbook-gpu-paper-"))
    if options.tiny and options.state == parser.get_default("state"):
        options.state = options.out / "state"
    options.out.mkdir(parents=True, exist_ok=True)
    left, failed = piece(options.tiny, options.state, options.out, end)
    total = len(commands(options.tiny))
    print(f"{total - len(left)} of {total} are done" + (f"; failed now: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # with the run that it drives
    sys.exit(main())
