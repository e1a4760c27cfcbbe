"""The papers at their own size on a GPU, in pieces of nine minutes: ``make gpu-paper``.

Every entry of ORDER is a ``fedbook run ... --profile paper --device cuda``, in the order of what a reader gains by it:

1. DP2-FedSAM, Table II, CIFAR-10, 1,000 clients of two classes, epsilon 1: the method, its rivals, its controls
2. FedSC, CIFAR-10, ResNet-20: the method against FedAvg+SC and all data in one place
3. Hetero-SSFL, CIFAR-10, ResNet-18 and 34: the method against FedBYOL, every client alone, and its controls
4. C-VFL, CIFAR-10 in quadrants, ResNet-18: without compression, then the compressors at 2 bits

On an NVIDIA H200 an entry of 1 took one to two minutes (three runs side by side); one of 2 takes four hours by its
steps of training alone (gpu_encoder.json: 146 ms for each of 100,000).

A call takes the first entry that is not done, ends it by SIGTERM before the budget is spent (the run saves its last
whole round), and says what is done and left; the next call goes on from the checkpoints in gpu-paper/. gpu_paper.json
holds commands, pieces (seconds, device, torch, commit, whether the data are the published ones), settings and results.
The data are looked for as always (FEDBOOK_DATA). ``--tiny``: digits on the CPU by the same machinery.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks.gpu import ROOT, folder, options, stamp
from fedbook import outputs
from fedbook.data.fetch import verify

TABLE, PROBLEM = "gpu_paper.json", "cifar10"
RIVALS = ("dp2-fedsam", "centaur", "dp-fedsam", "dp-fedavg", "dp-fedsam-ft", "dp-fedavg-ft")
ORDER = (
    *(f"dp2_fedsam --method {method}" for method in (*RIVALS, "frozen-body", "noise-only", "local-only")),
    *(f"fedsc --method {method}" for method in ("fedsc", "fedavg-sc", "centralized-sc", "random-encoder")),
    *(f"hetero_ssfl --method {method}" for method in ("hetero-ssfl", "fedbyol", "local-ssl")),
    *(f"hetero_ssfl --method {method}" for method in ("alignment-pass-only", "random-encoder")),
    "cvfl --method vfl",
    *(f"cvfl --method c-vfl --set compressor={word}" for word in ("scalar", "hex", "topk")),
)
TINY = ("fedavg --method fedavg --set rounds=60 --set local_epochs=20", "dp2_fedsam --method dp2-fedsam")
STOP, LEAST = 60, 60  # seconds kept for ending a run; seconds of work that are worth loading the data for
clock = time.monotonic


def commands(tiny: bool) -> dict[str, list[str]]:
    """The arguments of ``fedbook`` by the name of the entry, in their order."""
    where = "--problem digits --device cpu" if tiny else f"--problem {PROBLEM} --device cuda --profile paper"
    return {
        line.replace(" --method", "").replace(" --set", ""): ["run", *f"{line} {where}".split()]
        for line in (TINY if tiny else ORDER)
    }


def rounds(state: Path) -> int:
    """How many rounds a run has logged."""
    log = state / "rounds.csv"
    lines = log.read_text().splitlines()[1:] if log.exists() else []
    return int(lines[-1].split(",")[0]) if lines else 0


def go_on(command: list[str], state: Path, end: float) -> int:
    """Runs a command until it is done or the clock says ``end``; its exit status."""
    resume = ["--resume"] if (state / "checkpoint.pt").exists() else []
    words = [sys.executable, "-m", "fedbook", *command, "--out", str(state), *resume]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        while child.poll() is None and clock() < end:
            time.sleep(0.2)
    finally:
        child.terminate()  # nothing where it has ended
        try:
            child.wait(STOP - 15)
        except subprocess.TimeoutExpired:  # the checkpoint of an earlier round stands
            child.kill()
    return child.wait()


def data_files() -> dict[str, str]:
    """Whether the data are there and the published ones, file by file."""
    return {file.path: file.state for file in verify(PROBLEM).files}


def main(argv: list[str] | None = None) -> int:
    """One piece; 0 if nothing went wrong, 1 if an entry failed, 2 if something is missing."""
    asked, data, done = options(__doc__, argv), {}, 0
    end, failed = clock() + asked.budget - STOP, False
    if not asked.tiny:
        data = data_files()
        missing = [f"{path} (in the folder that FEDBOOK_DATA names)" for path in data if data[path] == "missing"]
        if not torch.cuda.is_available():
            missing.insert(0, "a GPU that PyTorch finds")
        if missing:
            print("missing:", *missing, sep="\n  ")
            return 2
    out = folder(asked.out, asked.tiny)
    for name, command in commands(asked.tiny).items():
        table = outputs.read(out / TABLE) or {}
        entry = table.get(name, {"pieces": []})
        state = (out if asked.tiny else ROOT) / "gpu-paper" / name.replace(" ", "_")
        word, first, begun = "done", rounds(state), clock()
        if "result" not in entry or entry["command"] != command:
            word = "left"
            if clock() < end - LEAST:
                status = go_on(command, state, end)
                ran = {"rounds": [first, rounds(state)], "seconds": round(clock() - begun, 1), "status": status}
                entry |= {"command": command, "pieces": [*entry["pieces"], ran | stamp(asked.tiny) | {"data": data}]}
                if status in (0, 3):  # 3: it diverged or stopped early, which is a result
                    word, entry["result"] = "done", outputs.read(state / "result.json")
                    entry["settings"] = outputs.read(state / outputs.IDENTITY)
                elif clock() < end:  # nobody ended it
                    word, failed = "FAILED", True
                outputs.write(out / TABLE, json.dumps(table | {name: entry}, indent=1) + "\n")
        done += word == "done"
        print(f"{word:6} {name}: {rounds(state)} rounds, {rounds(state) - first} of them now", flush=True)
    print(f"{done} of {len(commands(asked.tiny))} are done")
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # with the run that it drives
    sys.exit(main())
