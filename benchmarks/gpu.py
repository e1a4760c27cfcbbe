"""The tables of a GPU, in nine minutes a call: ``make gpu``.

"mlp", "cnn", "tower": local training by every way of ``benchmarks.local_training --by-hand`` and all steps of the
stacked way as one CUDA graph; "apart": how far a way's mean parameters end from the plain loop's. "encoder": a step of
FedSC's encoder at the paper's size in float32 (as torch sets it) and in bfloat16 as the package computes it ("mixed");
shares are of the speed that a large bfloat16 product of matrices has on this device. "tests": those marked for a GPU.

Each is stored as it ends (gpu_NAME.json: device, torch, commit, seconds, rows), and not measured again for the same
three. Without a GPU, or with ``--tiny``, all run at tiny size on the CPU into a temporary folder, to see that they run.
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
from collections.abc import Callable
from functools import partial
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


def beside(kind: str, counts: tuple[int, ...], device: str) -> list[dict]:
    """A kind of network: a row a number of clients. On the CPU, here and below, a tiny one."""
    rows = []
    for clients in counts if device == "cuda" else (2,):
        ways = by_hand(kind, clients, device)
        if device == "cuda":
            ways["stacked, one graph"] = _graph(kind, clients)
        rows.append({"kind": kind, "clients": clients} | compared(ways, device))
    return rows


def compared(ways: dict[str, Callable[[], Any]], device: str) -> dict[str, dict]:
    """Median milliseconds of the ways that run, how far apart they end, and why the others failed."""
    apart, failed, plain = {}, {}, {}
    for way, function in ways.items():
        try:
            end = function()
            if device == "cuda":
                torch.cuda.synchronize()
        except Exception as error:
            failed[way] = f"{type(error).__name__}: {error}"[:300]
            continue
        if way == "modules":
            plain = end
        elif isinstance(end, dict) and "modules" in ways:
            apart[way] = end
    apart = {way: max(float((end[n] - v).abs().max()) for n, v in plain.items()) for way, end in apart.items() if plain}
    ms = measure({way: ways[way] for way in ways if way not in failed}, 10 if device == "cuda" else 1, device)
    return {"ms": {way: round(value, 3) for way, value in ms.items()}, "apart": apart, "failed": failed}


def _graph(kind: str, clients: int) -> Callable[[], Any]:
    """The stacked way, recorded at the first call and replayed as one CUDA graph from then on."""
    given, graph, end = setting(kind, clients, "cuda"), torch.cuda.CUDAGraph(), {}
    given = given._replace(batches=SimpleNamespace(index=given.batches.index.cuda()))  # no copy from the host in it

    def run() -> Any:
        if not end:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # libraries set themselves up outside of a graph
                stacked_by_hand(given, clients)
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph):
                recorded = stacked_by_hand(given, clients)
            end.update(recorded)
        graph.replay()
        return end

    return run


def encoders(device: str) -> list[dict]:
    """FedSC's encoder: a row a number of views in a step; 2,048 are the paper's 512 images in two pairs."""
    tiny, rows = device == "cpu", []
    side = 256 if tiny else 8192
    a = torch.randn(side, side, device=device).bfloat16()  # ones would draw less power and run faster
    peak = 2 * side**3 / measure({"product": lambda: a @ a}, 20, device)["product"] / 1e9
    net = encoder("cnn", (3, 16, 16), 8) if tiny else encoder("fixup_resnet20_x8", (3, 32, 32), 512)
    net.module.to(device)
    theta, flops = {n: v.to(device) for n, v in net.init(stream(0, "start")).items()}, 0.0
    for views in (8,) if tiny else (256, 1024, 2048):
        x = normal((views, *net.shape), stream(0, "benchmark x")).float().to(device)
        last = x.contiguous(memory_format=torch.channels_last)
        settings = {"full": (x, False), "mixed": (x, True), "mixed, channels last": (last, True)}
        ways = {way: partial(step, net, theta, *given) for way, given in settings.items()}
        flops = flops or counted(ways["mixed"]) / views
        found = compared(ways, device)
        speed = {way: flops * views / ms / 1e9 for way, ms in found["ms"].items()}
        share = {way: round(value / peak, 4) for way, value in speed.items()}
        rows.append(found | {"views": views, "flops": flops * views, "peak": peak, "teraflops": speed, "share": share})
    return rows


def step(net: Any, theta: dict, x: torch.Tensor, mixed: bool) -> Any:
    """A client's direction of descent on views x [2 B, C, H, W]."""

    def loss(p: dict, batch: dict) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=mixed):
            z = net.apply(p, x)
        return spectral_loss(z.float().unflatten(0, (-1, 2))).total

    return sgd(loss, 0.1).direction({"theta": theta}, {})


def counted(function: Callable[[], Any]) -> int:
    """Floating-point operations of a call, of products and convolutions."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def tests(device: str) -> list[dict]:
    """The tests marked for a GPU, in a process of their own."""
    places = [f"tests/{folder}" for folder in FOLDERS] if device == "cuda" else ["tests/geometry/test_devices.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", *places]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line] or [done.stderr[-300:]]
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|skipped|failed|errors?)", lines[-1])}
    failed = {line.split()[1]: line for line in lines if line.startswith(("FAILED ", "ERROR "))}
    return [{"counts": counts, "failed": failed or ({"pytest": lines[-1]} if done.returncode else {})}]


TABLES: dict[str, Callable[[str], list[dict]]] = {
    "mlp": partial(beside, "mlp", (50, 200)),
    "encoder": encoders,
    "cnn": partial(beside, "cnn", (50, 200)),
    "tower": partial(beside, "tower cnn", (4, 20)),
    "tests": tests,
}


def stamp(tiny: bool) -> dict[str, Any]:
    """What a figure depends on beside what is measured."""
    device = "cpu, tiny" if tiny else torch.cuda.get_device_name()
    return {"device": device, "torch": torch.__version__, "commit": experiment.commit()}


def options(about: str, argv: list[str] | None) -> argparse.Namespace:
    """What a call asks for; of tiny ones the folder is a temporary one."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--budget", type=float, default=540, help="seconds this call may take; default 540")
    parser.add_argument("--out", type=Path, help="folder of the tables; default data/results")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes on the CPU; default --out a temporary folder")
    return parser.parse_args(argv)


def folder(asked: Path | None, tiny: bool) -> Path:
    """Where the tables go."""
    out = asked or (Path(tempfile.mkdtemp(prefix="fedbook-gpu-")) if tiny else ROOT / "data" / "results")
    out.mkdir(parents=True, exist_ok=True)
    return out


def main(argv: list[str] | None = None) -> int:
    """Measures what is not stored; 1 if anything failed."""
    asked = options(__doc__, argv)
    tiny = asked.tiny or not torch.cuda.is_available()
    if tiny:
        print("no GPU is measured: tiny sizes on the CPU, to see that all runs")

    def spent(*_: Any) -> NoReturn:
        raise OutOfTime

    out, mine, broken, left = folder(asked.out, tiny), stamp(tiny), set(), list(TABLES)
    threads, before = torch.get_num_threads(), signal.signal(signal.SIGALRM, spent)
    torch.set_num_threads(1)
    signal.setitimer(signal.ITIMER_REAL, asked.budget)
    try:
        for name, rows in TABLES.items():
            path, begun = out / f"gpu_{name}.json", time.perf_counter()
            table = outputs.read(path) or {}
            if any(table.get(word) != value for word, value in mine.items()):
                try:
                    found = rows("cpu" if tiny else "cuda")
                    table = mine | {"seconds": round(time.perf_counter() - begun, 3), "rows": found}
                    outputs.write(path, json.dumps(table, indent=1) + "\n")
                except Exception as error:
                    table = {"rows": [{"failed": f"{type(error).__name__}: {error}"}]}  # not stored
            left.remove(name)
            broken |= {name for row in table["rows"] if row["failed"]}
            print(f"{path}:", *map(json.dumps, table["rows"]), sep="\n  ", flush=True)
    except OutOfTime:
        print(f"{asked.budget:g} seconds are spent; left for the next call: {', '.join(left)}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        torch.set_num_threads(threads)
    print(*(f"something failed in {name}" for name in sorted(broken)), sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
