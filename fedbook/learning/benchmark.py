"""Measures the three ways to train a cohort locally and writes the committed choice table.

``python -m fedbook.learning.benchmark [--write] [--kinds mlp16,cnn_small]`` (other kinds keep their rows): each
client takes 5 SGD steps of batch 10 on 28x28 images. "modules" is the plain loop that everybody writes first (one
nn.Module and torch.optim.SGD a client), "loop" is ours over clients, "vmap" the vectorised step. The ways alternate
within a repetition, so that a busy machine disturbs them alike; the median counts, in milliseconds a round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from fedbook.federation.population import Rows
from fedbook.learning.local import Batches, epochs, local_steps, sgd
from fedbook.learning.models import Model, cross_entropy, model, stack
from fedbook.randomness import normal, stream

CLIENTS, CHUNKS, SAMPLES, BATCH = (10, 50, 100, 1000), (20, 50, 200, 1000), 50, 10
KINDS = ("linear", "mlp", "cnn", "mlp16", "cnn_small")


def setting(kind: str, clients: int, device: str) -> tuple[Model, dict, Rows, Batches]:
    """A model, K stacked starts, the clients' data and their batches."""
    net = model(kind, (1, 28, 28), 10)
    net.module.to(device)
    x = normal((2000, 1, 28, 28), stream(0, "benchmark x")).float().to(device)
    y = torch.from_numpy(stream(0, "benchmark y").integers(0, 10, 2000)).to(device)
    table = torch.from_numpy(stream(0, "benchmark table").integers(0, 2000, (clients, SAMPLES)))
    data = Rows({"x": x, "y": y}, table, torch.full((clients,), SAMPLES))
    start = net.init(stream(0, "benchmark start"))
    theta = {name: v.to(device) for name, v in stack([start] * clients).items()}
    return net, theta, data, epochs(data, [stream(0, "benchmark", client=k) for k in range(clients)], 1, BATCH)


def modules(net: Model, theta: dict, data: Rows, batches: Batches, lr: float = 0.1) -> None:
    """The plain loop: a module and an optimiser for each client."""
    for k in range(batches.index.shape[1]):
        module = net.build().to(data.samples["x"].device)
        module.load_state_dict({name: v[k] for name, v in theta.items()})
        optimiser = torch.optim.SGD(module.parameters(), lr=lr)
        for rows in batches.index[:, k].to(data.samples["x"].device):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(data.samples["x"][rows]), data.samples["y"][rows]).backward()
            optimiser.step()


def ways(net: Model, theta: dict, data: Rows, batches: Batches) -> dict[str, Callable[[], object]]:
    """The ways to train this cohort, as functions without arguments; "vmap 50" means in chunks of 50."""
    step = sgd(cross_entropy(net.apply), 0.1)

    def ours(how: str, chunk: int | None = None) -> Callable[[], object]:
        return lambda: local_steps(step, {"theta": theta}, data, batches, how=how, chunk=chunk)

    chunked = {f"vmap {chunk}": ours("vmap", chunk) for chunk in CHUNKS}
    return {"modules": lambda: modules(net, theta, data, batches), "loop": ours("loop"), **chunked}


def measure(functions: dict[str, Callable[[], object]], repeats: int, device: str) -> dict[str, float]:
    """Median milliseconds of each function, run in turn ``repeats`` times after one warm-up."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for repeat in range(repeats + 1):
        for name, function in functions.items():
            begun = time.perf_counter()
            function()
            if device == "cuda":
                torch.cuda.synchronize()
            if repeat:
                times[name].append(1000 * (time.perf_counter() - begun))
    return {name: statistics.median(values) for name, values in times.items()}


def table(device: str = "cpu", kinds: Sequence[str] = KINDS) -> list[dict]:
    """One row for each kind and number of clients."""
    rows = []
    for kind in kinds:
        for clients in CLIENTS:
            found = measure(ways(*setting(kind, clients, device)), 2 if clients == 1000 else 5, device)
            rows.append({"kind": kind, "clients": clients, "ms": {name: round(ms, 2) for name, ms in found.items()}})
            print(f"{kind:7} {clients:>7} " + " ".join(f"{ms:>9.1f}" for ms in found.values()), flush=True)
    return rows


def choices(rows: list[dict]) -> dict[str, list]:
    """For each kind the one way (how, chunk) whose worst ratio to the best way, over the cohort sizes, is smallest."""
    found: dict[str, list] = {}
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row["ms"] for row in rows if row["kind"] == kind]
        candidates = [way for way in own[0] if way != "modules"]
        worst = {way: max(ms[way] / min(ms[c] for c in candidates) for ms in own) for way in candidates}
        way = min(worst, key=worst.__getitem__)
        found[kind] = ["loop", None] if way == "loop" else ["vmap", int(way.split()[1])]
    return found


def summary(rows: list[dict], chosen: dict[str, list]) -> str:
    """Ratios of the committed choice: to the plain loop over modules (higher is better), and to the best way."""
    lines = [f"{'kind':7} {'clients':>7} {'choice':>10} {'modules/choice':>15} {'best/choice':>12}"]
    for row in rows:
        how, chunk = chosen[row["kind"]]
        way = how if how == "loop" else f"{how} {chunk}"
        best = min(ms for name, ms in row["ms"].items() if name != "modules")
        ratios = f"{row['ms']['modules'] / row['ms'][way]:>15.2f} {best / row['ms'][way]:>12.2f}"
        lines.append(f"{row['kind']:7} {row['clients']:>7} {way:>10} {ratios}")
    return "\n".join(lines)


def cost(device: str = "cpu") -> list[dict]:
    """Milliseconds of a whole FedAvg round (mlp, E = 1, batches of 10, 60 MNIST images a client) by K and m."""
    from fedbook.federation import Federation, Rounds
    from fedbook.learning.problems import ImageSettings, image_problem
    from fedbook.papers.fedavg import Config, FedAvg
    from fedbook.partition import Partition

    images = image_problem("mnist", ImageSettings(partition="iid", clients=1), device=device)
    rows = []
    for clients in (100, 1000, 10_000):
        table = torch.from_numpy(stream(0, "cost table").integers(0, len(images.y), (clients, 60)))
        data = Federation({"x": images.x, "y": images.y}, Partition(table, torch.full((clients,), 60)))
        for cohort in (10, 30, 100):
            config = Config(clients_per_round=cohort, local_epochs=1, batch_size=10)
            rounds = Rounds(FedAvg(config, images.model), data, 6)
            ms = statistics.median([1000 * record.seconds for record in rounds][1:])
            rows.append({"clients": clients, "cohort": cohort, "ms": round(ms, 1)})
            print(
                f"{clients:>7} clients, {cohort:>4} a round: {ms:>8.1f} ms, {1000 / ms:.1f} rounds a second", flush=True
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write choices.json of this checkout")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--cost", metavar="FILE", help="measure whole rounds by clients and cohort instead, store them")
    parser.add_argument("--kinds", default=",".join(KINDS), help="models to measure, comma-separated")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.cost:
        rows = cost(options.device)
        Path(options.cost).write_text(
            json.dumps({"torch": torch.__version__.split("+")[0], "device": options.device, "rows": rows}, indent=1)
            + "\n"
        )
        return
    names = ["modules", "loop", *(f"vmap {chunk}" for chunk in CHUNKS)]
    print(f"{'kind':7} {'clients':>7} " + " ".join(f"{name:>9}" for name in names) + "   milliseconds")
    rows = table(options.device, options.kinds.split(","))
    chosen = choices(rows)
    print(summary(rows, chosen))
    if options.write:
        path = Path(__file__).with_name("choices.json")
        known = json.loads(path.read_text()) if path.exists() else {}
        kept = known.get("measured", {}).get(options.device, {}).get("rows", [])
        rows = [row for row in kept if row["kind"] not in chosen] + rows
        known.setdefault("choice", {}).setdefault(options.device, {}).update(chosen)
        known.setdefault("measured", {})[options.device] = {"torch": torch.__version__.split("+")[0], "rows": rows}
        path.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
