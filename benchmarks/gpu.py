"""The tables of a GPU, in nine minutes a call: ``make gpu`` (``python -m benchmarks.gpu [--budget SECONDS] [--out DIR]``).

"tests": the package's tests that are marked for a GPU. "mlp", "cnn", "tower": local training by every way of
``benchmarks.local_training --by-hand`` and, on a GPU, all steps of the stacked way as one CUDA graph; "apart" is the
largest distance of a way's mean parameters from those of the plain loop over modules. "encoder": one step of FedSC's
encoder at the paper's size in float32 and in bfloat16 as the package computes it ("mixed"), also with channels last;
the share is of the speed that a large bfloat16 product of matrices reaches on the same device.

Each table is stored as it ends, as gpu_NAME.json with device, torch, commit and seconds; one that is stored for this
device, torch and commit is not measured again. Without a GPU all run at tiny size on the CPU, into a temporary folder,
to see that they run (``--tiny``): such times say nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.local_training import by_hand, measure, setting, stacked_by_hand
from fedbook import experiment, outputs
from fedbook.federation.local import sgd
from fedbook.learning.encoders import encoder
from fedbook.papers.fedsc.spectral import spectral_loss
from fedbook.randomness import normal, stream

ROOT = Path(__file__).parents[1]
FOLDERS = ("compression", "federation", "geometry", "learning", "privacy")  # where tests know the fixture "device"


class OutOfTime(BaseException):
    """The budget is spent: not an error that a row keeps."""


def stamp() -> dict[str, Any]:
    """What a figure depends on beside what is measured."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {"device": device, "torch": torch.__version__, "commit": experiment.commit()}


def tests(device: str, tiny: bool) -> Iterator[dict]:
    """The tests marked for a GPU, in a process of their own."""
    places = ["tests/geometry/test_devices.py"] if tiny else [f"tests/{folder}" for folder in FOLDERS]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", *places]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines() or ["no output"]
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|skipped|failed|errors?)", lines[-1])}
    failed = {line.split()[1]: line for line in lines if line.startswith(("FAILED ", "ERROR "))}
    if not counts:
        failed = {"pytest": lines[-1]}
    yield {"counts": counts, "failed": failed}


def beside(kind: str, counts: tuple[int, ...]) -> Callable[[str, bool], Iterator[dict]]:
    """The table of a kind of network: a row a number of clients."""

    def rows(device: str, tiny: bool) -> Iterator[dict]:
        for clients in (2,) if tiny else counts:
            all_ways = by_hand(kind, clients, device)
            if device == "cuda":
                all_ways["stacked, one graph"] = _graph(kind, clients)
            yield {"kind": kind, "clients": clients} | compared(all_ways, device, 1 if tiny else 10)

    return rows


def compared(ways: dict[str, Callable[[], Any]], device: str, repeats: int) -> dict[str, dict]:
    """Median milliseconds of the ways that run, how far apart they end, and why the others failed."""
    ends, failed = {}, {}
    for way, function in ways.items():
        try:
            ends[way] = function()
            if device == "cuda":
                torch.cuda.synchronize()
        except Exception as error:
            failed[way] = f"{type(error).__name__}: {error}"[:300]
    plain = ends.get("modules", {})
    apart = {
        way: max(float((end[name] - v).abs().max()) for name, v in plain.items())
        for way, end in ends.items()
        if plain and way not in ("round", "modules")  # a round begins elsewhere
    }
    ms = measure({way: ways[way] for way in ends}, repeats, device)
    return {"ms": {way: round(value, 3) for way, value in ms.items()}, "apart": apart, "failed": failed}


def _graph(kind: str, clients: int) -> Callable[[], Any]:
    """The stacked way, recorded at the first call and replayed as one CUDA graph from then on."""
    given, graph, end = setting(kind, clients, "cuda"), torch.cuda.CUDAGraph(), {}
    given = given._replace(
        batches=SimpleNamespace(index=given.batches.index.cuda())
    )  # a graph holds no copy from the host

    def run() -> Any:
        if not end:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # libraries set themselves up outside of a graph
                for _ in range(3):
                    stacked_by_hand(given, clients)
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph):
                recorded = stacked_by_hand(given, clients)
            end.update(recorded)
        graph.replay()
        return end

    return run


def encoders(device: str, tiny: bool) -> Iterator[dict]:
    """FedSC's encoder at the paper's size: a row a number of views in a step."""
    side = 256 if tiny else 8192
    a = torch.randn(side, side, device=device).bfloat16()  # ones would draw less power and run faster
    ms = measure({"product": lambda: a @ a}, 3 if tiny else 30, device)["product"]
    peak = 2 * side**3 / ms / 1e9  # TFLOP/s
    name, shape, width = ("cnn", (3, 16, 16), 8) if tiny else ("fixup_resnet20_x8", (3, 32, 32), 512)
    for views in (8,) if tiny else (256, 1024, 2048):  # 2048: batches of 512 in two pairs of views
        net = encoder(name, shape, width)
        net.module.to(device)
        theta = {n: v.to(device) for n, v in net.init(stream(0, "benchmark start")).items()}
        x = normal((views // 2, 2, *shape), stream(0, "benchmark x")).float().to(device)
        ways = {
            f"{precision}{', channels last' * last}": step_of(net, theta, x, precision, last)
            for precision, last in (("full", False), ("mixed", False), ("mixed", True))
        }
        found = compared(ways, device, 1 if tiny else 10)
        flops = counted(ways["full"])
        speed = {way: flops / ms / 1e9 for way, ms in found["ms"].items()}
        share = {way: round(value / peak, 4) for way, value in speed.items()}
        del found["apart"]
        yield {
            "encoder": name,
            "views": views,
            "tflop": flops / 1e12,
            "peak": peak,
            "tflops": speed,
            "share": share,
        } | found


def step_of(net: Any, theta: dict, x: torch.Tensor, precision: str, last: bool) -> Callable[[], Any]:
    """A client's step on views x [B, V, C, H, W], without the update."""
    layout = torch.channels_last if last else torch.contiguous_format
    images = x.flatten(0, 1).contiguous(memory_format=layout)

    def loss(p: dict, batch: dict) -> torch.Tensor:
        with torch.autocast(images.device.type, torch.bfloat16, enabled=precision == "mixed"):
            z = net.apply(p, images)
        return spectral_loss(z.float().unflatten(0, x.shape[:2])).total

    step = sgd(loss, 0.1)
    return lambda: step.direction({"theta": theta}, {})


def counted(function: Callable[[], Any]) -> int:
    """Floating-point operations of a call, of products and convolutions."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


TABLES: dict[str, Callable[[str, bool], Iterator[dict]]] = {
    "mlp": beside("mlp", (50, 200)),
    "encoder": encoders,
    "cnn": beside("cnn", (50, 200)),
    "tower": beside("tower cnn", (4, 20)),
    "tests": tests,
}


def main(argv: list[str] | None = None) -> int:
    """Measures what is not stored; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=540, help="seconds this call may take; default 540")
    parser.add_argument("--out", type=Path, default=ROOT / "data" / "results", help="folder of the tables")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes on the CPU; without --out a temporary folder")
    options = parser.parse_args(argv)
    tiny = options.tiny or not torch.cuda.is_available()
    if tiny:
        print("no GPU is measured: tiny sizes on the CPU, to see that all runs")
        if options.out == parser.get_default("out"):
            options.out = Path(tempfile.mkdtemp(prefix="fedbook-gpu-"))
    options.out.mkdir(parents=True, exist_ok=True)

    def spent(*_: Any) -> NoReturn:
        raise OutOfTime

    mine, broken, name = {**stamp(), **({"device": "cpu, tiny"} if tiny else {})}, [], ""
    threads, before = torch.get_num_threads(), signal.signal(signal.SIGALRM, spent)
    torch.set_num_threads(1)
    signal.setitimer(signal.ITIMER_REAL, options.budget)
    try:
        for name, rows in TABLES.items():
            path, begun = options.out / f"gpu_{name}.json", time.perf_counter()
            table = outputs.read(path) or {}
            if any(table.get(word) != value for word, value in mine.items()):
                try:
                    table = mine | {"rows": list(rows("cpu" if tiny else "cuda", tiny))}
                except Exception as error:
                    broken.append(name)
                    print(f"{name}: {type(error).__name__}: {error}", flush=True)
                    continue
                table["seconds"] = round(time.perf_counter() - begun, 1)
                outputs.write(path, json.dumps(table, indent=1) + "\n")
            broken += [name for row in table["rows"] if row["failed"]]
            print(f"{path}:", *(json.dumps(row) for row in table["rows"]), sep="\n  ", flush=True)
    except OutOfTime:
        left = list(TABLES)[list(TABLES).index(name) :]
        print(f"{options.budget:g} seconds are spent; left for the next call: {', '.join(left)}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        torch.set_num_threads(threads)
    if broken:
        print(f"something failed in: {', '.join(dict.fromkeys(broken))}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
