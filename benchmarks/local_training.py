"""Measures the ways to train a cohort locally and writes the committed choice table.

``python -m benchmarks.local_training [--write] [--kinds towers,cnn_small]`` (other kinds keep their rows). Models:
each client takes 5 SGD steps of batch 10 on 28x28 images. Towers of vertical learning (kinds "tower NAME"; clients are
parties times seeds): 2 steps on one batch of 100 through a linear fusion of four embeddings of width 32, of which
three stand still. Encoders of self-supervised learning (kinds "encoder NAME"): 2 steps of the spectral loss, 64
samples in two views. The ResNets of both see tiny images, only to tell the loop from vmap. "modules" is the plain loop
that everybody writes first (one nn.Module and torch.optim.SGD a client; no encoders), "loop" is ours over clients,
"channels_last" the same with the weights of convolutions channels last, "vmap" the vectorised step. Steps that have a
form of their own for clients together ("together", dense models) take it instead; the choice is for those that have
none, such as SAM.

``--by-hand FILE`` measures beside each other what the package does and what one can write for this very network:
"round" is a whole round of FedAvg as the package runs it (draws, checks, record and mean included; models only),
"local" its local training alone by the committed choice, "modules" as above, "vmap" torch.func on all clients at once,
"stacked" grouped convolutions and baddbmm on all at once under autograd (of a dense network gradient and update are
written out, in one product), "stacked 10" the same in chunks of 10 clients. All go from one theta to a mean.

The ways alternate within a repetition, so that a busy machine disturbs them alike; the median counts, in milliseconds a
round: on a CPU those of the one thread at work, which waiting for a turn does not lengthen.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from benchmarks.population import conditions
from fedbook.experiment import commit
from fedbook.federation import Federation, Rounds, local
from fedbook.federation.local import Batches, Step, epochs, local_steps, sgd
from fedbook.federation.population import Rows
from fedbook.federation.tree import Tree, tree_map
from fedbook.learning.encoders import encoder
from fedbook.learning.models import Loss, Network, cross_entropy, model, stack
from fedbook.papers.cvfl.problem import batch_loss
from fedbook.papers.cvfl.towers import fusion, tower
from fedbook.papers.fedavg import Config, FedAvg
from fedbook.papers.fedavg.problem import ImageSettings, image_problem
from fedbook.papers.fedsc.spectral import spectral_loss
from fedbook.partition import Partition
from fedbook.randomness import normal, stream

LR, FIXED = 0.1, ("modules", "together")  # FIXED: ways that are measured and not chosen between
OURS, BY_HAND = ("round", "local"), ("mlp", "mlp16", "cnn", "cnn_small", "tower mlp", "tower cnn")
CHOICES = Path(local.__file__).with_name("choices.json")

MODELS = ("linear", "mlp", "cnn", "mlp16", "cnn_small", "cnn_fedavg", "cnn_dp2fedsam")
WIDE = ("cnn_fedavg", "cnn_dp2fedsam")  # seconds a round: few clients, few repeats
CLIENTS, CHUNKS, SAMPLES, BATCH = (10, 50, 100, 1000), (20, 50, 200, 1000), 50, 10
TOWERS = {  # the shape of a party's sample
    "tower linear": (1, 14, 14), "tower mlp": (1, 14, 14), "tower mlp64": (1, 14, 14), "tower cnn": (3, 16, 16),
    "tower mvcnn": (3, 1, 16, 16), "tower lstm": (48, 19),
    "tower resnet18": (3, 8, 8), "tower resnet18_imagenet": (3, 32, 32),
}  # fmt: skip
TOWER_ROWS, TOWER_CHUNKS, TOWER_BATCH, TOWER_STEPS, PARTIES, WIDTH = (4, 20, 50), (4, 20, 50), 100, 2, 4, 32
ENCODERS = {  # the shape of an image
    "encoder mlp": (1, 8, 8), "encoder mlp256": (1, 28, 28), "encoder cnn": (1, 28, 28), "encoder resnet18": (3, 8, 8),
    "encoder cnn_s": (1, 8, 8), "encoder cnn_m": (1, 8, 8), "encoder resnet34": (3, 8, 8),
    "encoder fixup_resnet20": (3, 8, 8), "encoder fixup_resnet20_x2": (3, 8, 8), "encoder fixup_resnet20_x4": (3, 4, 4),
    "encoder fixup_resnet20_x8": (3, 4, 4), "encoder fixup_resnet50": (3, 4, 4),
}  # fmt: skip
ENCODER_ROWS, ENCODER_CHUNKS, ENCODER_BATCH, ENCODER_STEPS, ENCODER_WIDTH = (4, 10, 40), (5, 20, 50), 64, 2, 64
KINDS = {"models": MODELS, "towers": tuple(TOWERS), "encoders": tuple(ENCODERS)}
ALL = tuple(kind for kinds in KINDS.values() for kind in kinds)


class Setting(NamedTuple):
    """What is to be trained: K stacked starts in ``carry``, the clients' data and their batches."""

    net: Network
    step: Step
    carry: dict[str, Tree]
    data: Rows
    batches: Batches
    tail: Callable[[Tensor, Tree, Tensor], Tensor] | None = None  # (net's output, fixed, y) to the loss; encoders: none


def sizes(kind: str) -> tuple[int, ...]:
    """The numbers of clients to measure."""
    rows = TOWER_ROWS if kind in TOWERS else ENCODER_ROWS if kind in ENCODERS else CLIENTS
    return rows[:1] if "resnet" in kind else rows[:2] if kind in WIDE else rows


def setting(kind: str, clients: int, device: str) -> Setting:
    """A model or an encoder and its clients, or a tower and its parties."""
    shape = TOWERS[kind] if kind in TOWERS else (2, *ENCODERS[kind]) if kind in ENCODERS else (1, 28, 28)
    x = normal((2000, *shape), stream(0, "benchmark x")).float()
    y = torch.from_numpy(stream(0, "benchmark y").integers(0, 10, 2000))
    samples = {"x": x.to(device), "y": y.to(device)}
    count = TOWER_BATCH if kind in TOWERS else ENCODER_BATCH if kind in ENCODERS else SAMPLES
    table = torch.from_numpy(stream(0, "benchmark table").integers(0, 2000, (clients, count)))
    data = Rows(samples, table, torch.full((clients,), count))
    if kind in TOWERS:
        net = tower(kind.removeprefix("tower "), shape, WIDTH)
        step, fixed, tail = _party(net, clients, device)
        batches = _same(table, TOWER_STEPS)
    elif kind in ENCODERS:
        net = encoder(kind.removeprefix("encoder "), shape[1:], ENCODER_WIDTH)
        step, fixed, tail = _contrast(net), {}, None
        batches = _same(table, ENCODER_STEPS)
    else:
        net = model(kind, shape, 10)
        step, fixed, tail = sgd(cross_entropy(net.apply, net.layers, net.apply_each), LR), {}, _cross_entropy
        batches = epochs(data, [stream(0, "benchmark", client=k) for k in range(clients)], 1, BATCH)
    net.module.to(device)
    theta = {name: p.expand(clients, *p.shape) for name, p in net.init(stream(0, "benchmark start")).items()}
    return Setting(net, step, {"theta": tree_map(lambda v: v.to(device), theta)} | fixed, data, batches, tail)


def _cross_entropy(logits: Tensor, fixed: Tree, y: Tensor) -> Tensor:
    return F.cross_entropy(logits, y)


def _same(table: Tensor, steps: int) -> Batches:
    """Each client's whole table as its batch, ``steps`` times."""
    real = torch.ones_like(table, dtype=torch.bool)
    return Batches(table.expand(steps, -1, -1), real.expand(steps, -1, -1))


def _contrast(net: Network) -> Step:
    """A client's step of the spectral loss; x [B, V, C, H, W] are views."""

    def loss(p: Tree, batch: Mapping[str, Tensor]) -> Tensor:
        z = net.apply(p, batch["x"].flatten(0, 1)).unflatten(0, batch["x"].shape[:2])
        return spectral_loss(z, weight=batch["weight"]).total

    return sgd(loss, 1e-3)


def _party(net: Network, rows: int, device: str) -> tuple[Step, dict[str, Tree], Callable]:
    """A party's step through the fusion while the others' embeddings and theta_0 stay as they came."""
    joint, names = fusion("concat", [WIDTH] * PARTIES, 10), [name for name, _ in net.module.named_parameters()]

    def tail(h: Tensor, fixed: Tree, y: Tensor) -> Tensor:
        return F.cross_entropy(joint.apply(fixed["theta0"], joint.put(fixed["others"], h, fixed["columns"])), y)

    loss = batch_loss("cross_entropy")

    def value(apply: Callable[[Tree, Tensor], Tensor], p: Tree, batch: Mapping[str, Tensor]) -> Tensor:
        z = joint.put(p["others"], apply({name: p[name] for name in names}, batch["x"]), p["columns"])
        return loss(joint.apply(p["theta0"], z), batch["y"])

    fixed = {
        "others": normal((rows, TOWER_BATCH, PARTIES * WIDTH), stream(0, "benchmark others")).float().tanh(),
        "columns": torch.stack([joint.columns(r % PARTIES) for r in range(rows)]),
        "theta0": stack([joint.init(stream(0, "benchmark server"))] * rows),
    }
    step = sgd(Loss(partial(value, net.apply), many=partial(value, net.apply_each)), LR)
    return step, {"fixed": tree_map(lambda v: v.to(device), fixed)}, tail


def modules(given: Setting) -> Tree:
    """The plain loop: a module and an optimiser for each client; the mean of what they end at."""
    x, y = given.data.samples["x"], given.data.samples["y"]
    clients, mean = given.batches.index.shape[1], {}
    for k in range(clients):
        module, fixed = given.net.build().to(x.device), tree_map(lambda v, k=k: v[k], given.carry.get("fixed", {}))
        module.load_state_dict({name: v[k] for name, v in given.carry["theta"].items()})
        optimiser = torch.optim.SGD(module.parameters(), lr=LR)
        for rows in given.batches.index[:, k].to(x.device):
            optimiser.zero_grad()
            given.tail(module(x[rows]), fixed, y[rows]).backward()
            optimiser.step()
        for name, p in module.named_parameters():
            mean[name] = p.detach() / clients + mean.get(name, 0)
    return mean


def vmap_by_hand(given: Setting) -> Tree:
    """All clients at once: torch.func's gradient of one client's loss, and an update in place."""
    x, y, fixed = given.data.samples["x"], given.data.samples["y"], given.carry.get("fixed", {})

    def loss(p: Tree, fixed: Tree, x: Tensor, y: Tensor) -> Tensor:
        return given.tail(functional_call(given.net.module, p, (x,)), fixed, y)

    slope, theta = vmap(grad(loss)), {name: v.clone() for name, v in given.carry["theta"].items()}
    for rows in given.batches.index.to(x.device):
        for name, g in slope(theta, fixed, x[rows], y[rows]).items():
            theta[name].sub_(g, alpha=LR)
    return {name: v.mean(0) for name, v in theta.items()}


def stacked_by_hand(given: Setting, chunk: int) -> Tree:
    """``chunk`` clients at once by layers that know a leading axis; each chunk takes all its steps before the next."""
    index = given.batches.index.to(given.data.samples["x"].device)
    move = _dense_step if getattr(given.net, "layers", ()) else _autograd_step
    start = {name: v[0] for name, v in given.carry["theta"].items()}
    if move is _dense_step:  # [in, out] is the layout of both products
        start = {name: v.mT.contiguous() if v.ndim == 2 else v for name, v in start.items()}
    clients, total = index.shape[1], {name: torch.zeros_like(v) for name, v in start.items()}
    for first in range(0, clients, chunk):
        members = slice(first, min(first + chunk, clients))
        own = {name: v.repeat(members.stop - first, *[1] * v.ndim) for name, v in start.items()}
        fixed = tree_map(lambda v, members=members: v[members], given.carry.get("fixed", {}))
        for rows in index[:, members]:
            move(given, own, fixed, given.data.samples["x"][rows], given.data.samples["y"][rows])
        for name, v in own.items():
            total[name] += v.sum(0)
    return {name: (v.mT if move is _dense_step and v.ndim == 2 else v) / clients for name, v in total.items()}


def _dense_step(given: Setting, theta: Tree, fixed: Tree, x: Tensor, y: Tensor) -> None:
    """Gradient and update in one product; weights lie as [R, in, out], x [R, B, ...], y [R, B]."""
    names, inputs = given.net.layers, [x.flatten(2)]
    for name in names:
        z = torch.baddbmm(theta[f"{name}.bias"][:, None], inputs[-1], theta[f"{name}.weight"])
        inputs.append(z if name == names[-1] else z.relu_())
    g = inputs.pop().softmax(-1)
    g.scatter_add_(-1, y[..., None], torch.full_like(y[..., None], -1, dtype=g.dtype)).div_(y.shape[1])
    for name, h in zip(reversed(names), reversed(inputs), strict=True):
        below = torch.bmm(g, theta[f"{name}.weight"].mT).mul_(h > 0) if name != names[0] else None
        theta[f"{name}.weight"].baddbmm_(h.mT, g, alpha=-LR)
        theta[f"{name}.bias"].sub_(g.sum(1), alpha=LR)
        g = below


def _autograd_step(given: Setting, own: Tree, fixed: Tree, x: Tensor, y: Tensor) -> None:
    """Grouped convolutions and batched products under autograd."""
    theta = {name: v.detach().requires_grad_() for name, v in own.items()}
    h, clients = x, len(x)
    for name, layer in given.net.module.named_children():
        if isinstance(layer, nn.Conv2d):
            joint = h.transpose(0, 1).flatten(1, 2)  # [B, R C, H, W], a group a client
            weight, bias = theta[f"{name}.weight"].flatten(0, 1), theta[f"{name}.bias"].flatten()
            joint = F.conv2d(joint, weight, bias, layer.stride, layer.padding, groups=clients)
            h = joint.unflatten(1, (clients, -1)).transpose(0, 1)
        elif isinstance(layer, nn.Linear):
            h = torch.baddbmm(theta[f"{name}.bias"][:, None], h, theta[f"{name}.weight"].mT)
        else:
            h = h.flatten(2) if isinstance(layer, nn.Flatten) else layer(h.flatten(0, 1)).unflatten(0, h.shape[:2])
    loss = vmap(given.tail)(h, fixed, y).sum()
    for v, g in zip(own.values(), torch.autograd.grad(loss, list(theta.values())), strict=True):
        v.sub_(g, alpha=LR)


def by_hand(kind: str, clients: int, device: str = "cpu") -> dict[str, Callable[[], Any]]:
    """What the package does and what one can write by hand, as functions without arguments."""
    given = setting(kind, clients, device)
    how, chunk = local.choose(device, kind)
    whole = {"round": _round(given)} if kind in MODELS else {}
    return whole | {
        "local": lambda: _mean(
            local_steps(given.step, given.carry, given.data, given.batches, how=how, chunk=chunk)[0]["theta"]
        ),
        "modules": lambda: modules(given),
        "vmap": lambda: vmap_by_hand(given),
        "stacked": lambda: stacked_by_hand(given, clients),
        "stacked 10": lambda: stacked_by_hand(given, 10),
    }


def _mean(theta: Tree) -> Tree:
    return tree_map(lambda v: v.mean(0), theta)


def _round(given: Setting) -> Callable[[], Any]:
    """FedAvg's next round on the same clients, all of them."""
    federation = Federation(given.data.samples, Partition(given.data.table, given.data.sizes))
    config = Config(rounds=1_000_000, batch_size=BATCH, lr=LR)
    return Rounds(FedAvg(config, given.net), federation, config.rounds).step


def beside(kinds: Sequence[str], clients: Sequence[int], repeats: int, device: str = "cpu") -> list[dict]:
    """The table of ``--by-hand``: a row a kind and number of clients, medians in milliseconds."""
    rows = []
    for kind in kinds:
        for count in clients:
            ms = measure(by_hand(kind, count, device), repeats, device)
            rows.append({"kind": kind, "clients": count, "ms": {way: round(value, 2) for way, value in ms.items()}})
            ours, best = ms.get("round", ms["local"]), min(value for way, value in ms.items() if way not in OURS)
            times = "   ".join(f"{way} {value:.1f}" for way, value in ms.items())
            print(
                f"{kind:12} {count:>5}   {times}   modules / ours {ms['modules'] / ours:.2f}   "
                f"ours / best by hand {ours / best:.2f}",
                flush=True,
            )
    return rows


def ways(kind: str, clients: int, device: str) -> dict[str, Callable[[], object]]:
    """The ways to train this cohort, as functions without arguments; "vmap 50" means in chunks of 50."""
    given = setting(kind, clients, device)
    vectorised = replace(given.step, together=None)

    def ours(step: Step, how: str, chunk: int | None = None) -> Callable[[], object]:
        return lambda: local_steps(step, given.carry, given.data, given.batches, how=how, chunk=chunk)

    fixed = {"modules": lambda: modules(given)} if kind in MODELS else {}  # not to be chosen between
    if given.step.together is not None:
        fixed["together"] = ours(given.step, "vmap")
    chunks = TOWER_CHUNKS if kind in TOWERS else ENCODER_CHUNKS if kind in ENCODERS else CHUNKS
    if kind in ENCODERS and "resnet" in kind:
        chunks = chunks[:1]  # larger ones would do the same with so few clients
    if kind in WIDE:
        chunks = chunks[:2]
    loops = ["loop"]
    if any(isinstance(layer, nn.Conv2d) for layer in given.net.module.modules()):
        loops.append("channels_last")
    return (
        fixed
        | {how: ours(given.step, how) for how in loops}
        | {f"vmap {c}": ours(vectorised, "vmap", c) for c in chunks}
    )


def measure(functions: dict[str, Callable[[], object]], repeats: int, device: str) -> dict[str, float]:
    """Median milliseconds of each function, run in turn ``repeats`` times after one warm-up."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    clock = time.process_time if device == "cpu" else time.perf_counter
    for repeat in range(repeats + 1):
        for name, function in functions.items():
            begun = clock()
            function()
            if device == "cuda":
                torch.cuda.synchronize()
            if repeat:
                times[name].append(1000 * (clock() - begun))
    return {name: statistics.median(values) for name, values in times.items()}


def table(device: str = "cpu", kinds: Sequence[str] = ALL) -> list[dict]:
    """One row for each kind and number of clients."""
    rows = []
    for kind in kinds:
        for clients in sizes(kind):
            repeats = 2 if clients == 1000 or "resnet" in kind else 5 if kind in WIDE else 15
            medians = measure(ways(kind, clients, device), repeats, device)
            rows.append({"kind": kind, "clients": clients, "ms": {name: round(ms, 2) for name, ms in medians.items()}})
            times = "   ".join(f"{name} {ms:.1f}" for name, ms in medians.items())
            print(f"{kind:23} {clients:>7}   {times}", flush=True)
    return rows


def choices(rows: list[dict]) -> dict[str, list]:
    """For each kind the one way (how, chunk) whose worst ratio to the best way, over the cohort sizes, is smallest."""
    chosen: dict[str, list] = {}
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row["ms"] for row in rows if row["kind"] == kind]
        candidates = [way for way in own[0] if way not in FIXED]
        worst = {way: max(ms[way] / min(ms[c] for c in candidates) for ms in own) for way in candidates}
        way = min(worst, key=worst.__getitem__)
        how, *chunk = way.split()
        chosen[kind] = [how, int(chunk[0]) if chunk else None]
    return chosen


def summary(rows: list[dict], chosen: dict[str, list]) -> str:
    """Ratios: the plain loop over modules to the committed choice, the best way to it, the loop to "together"."""
    lines = [f"{'kind':23} {'clients':>7} {'choice':>10} {'modules/choice':>15} {'best/choice':>12} {'/together':>10}"]
    for row in rows:
        how, chunk = chosen[row["kind"]]
        way = how if chunk is None else f"{how} {chunk}"
        best = min(ms for name, ms in row["ms"].items() if name not in FIXED) / row["ms"][way]
        plain = f"{row['ms']['modules'] / row['ms'][way]:.2f}" if "modules" in row["ms"] else "-"
        both = f"{row['ms']['modules'] / row['ms']['together']:.2f}" if "together" in row["ms"] else "-"
        lines.append(f"{row['kind']:23} {row['clients']:>7} {way:>10} {plain:>15} {best:>12.2f} {both:>10}")
    return "\n".join(lines)


def merged(known: Mapping[str, Any], device: str, rows: list[dict]) -> dict[str, Any]:
    """The table ``known`` with these rows and their choices; kinds and devices that they do not name stay."""
    chosen = choices(rows)
    choice, measured = dict(known.get("choice", {})), dict(known.get("measured", {}))
    kept = [row for row in measured.get(device, {}).get("rows", []) if row["kind"] not in chosen]
    choice[device] = choice.get(device, {}) | chosen
    measured[device] = {"torch": torch.__version__.split("+")[0], "rows": kept + rows}
    return {"choice": choice, "measured": measured}


def cost(device: str = "cpu") -> list[dict]:
    """Milliseconds of a whole FedAvg round (mlp, E = 1, batches of 10, 60 MNIST images a client) by K and m."""
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
    parser.add_argument("--by-hand", metavar="FILE", help="measure beside what one can write by hand instead, store it")
    parser.add_argument("--clients", default="50,200", help="with --by-hand: how many, comma-separated")
    parser.add_argument("--repeats", type=int, default=30, help="with --by-hand: of which the median counts")
    parser.add_argument("--kinds", help=f"what to measure, comma-separated: kinds or these words, {', '.join(KINDS)}")
    options = parser.parse_args()
    asked = options.kinds or ",".join(BY_HAND if options.by_hand else KINDS)
    kinds = [kind for word in asked.split(",") for kind in KINDS.get(word, (word,))]
    if not set(kinds) <= set(ALL):
        parser.error(f"--kinds: got {options.kinds}; allowed are {', '.join((*KINDS, *ALL))}")
    torch.set_num_threads(1)
    if options.cost or options.by_hand:
        counts, machine = [int(count) for count in options.clients.split(",")], conditions()
        rows = cost(options.device) if options.cost else beside(kinds, counts, options.repeats, options.device)
        result = {
            "torch": torch.__version__.split("+")[0],
            "device": options.device,
            "commit": commit(),
            "machine": machine,
        }
        machine["load_average_after"] = conditions()["load_average"]
        result["rows"] = rows
        Path(options.cost or options.by_hand).write_text(json.dumps(result, indent=1) + "\n")
        return
    print(f"{'kind':23} {'clients':>7}   milliseconds")
    rows = table(options.device, kinds)
    print(summary(rows, choices(rows)))
    if options.write:
        known = json.loads(CHOICES.read_text()) if CHOICES.exists() else {}
        CHOICES.write_text(json.dumps(merged(known, options.device, rows), indent=1) + "\n")


if __name__ == "__main__":
    main()
