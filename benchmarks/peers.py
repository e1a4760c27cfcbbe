"""Times a round of FedAvg beside the simulators of Flower and pfl-research, all from one start on the same batches.

``python -m benchmarks.peers [--environment DIR] [--clients 50,200] [--rounds 15] [--write FILE]``. A client takes 5 SGD
steps of batch 10 on its 50 images of MNIST, the network is an MLP 784-64-10. ``--environment DIR`` runs it in a virtual
environment of its own that sees the packages of the calling one and has the two simulators (made if it is not there;
it downloads them). A simulator that cannot be imported is left out, and the table says why.

"fedbook" is a whole round as the package runs it, "local" its training alone, "modules" the loop over modules that
everybody writes first, "vmap" and "stacked 10" what one can write by hand (benchmarks.local_training); these four get
their batches for nothing. "Flower" is its strategy FedAvg on Ray with one worker, "pfl" its FederatedAveraging on its
simulated backend; both keep their progress lines, neither evaluates. Clients come in one order of batches everywhere,
so all must hold the same parameters: "apart" is the largest difference from the loop's after the first round, at most
1e-4. Rounding grows from there with the steps, so in the end the training losses must agree, to a thousandth.

The ways take turns round by round, one thread each, the first round not counted. What counts is processor time (for
Flower the sum over its processes, the server's, Ray's and the worker's), which waiting for a turn on a busy machine
does not lengthen; wall time stands beside it. Median and quartiles, in milliseconds a round.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.local_training import BATCH, LR, Setting, modules, stacked_by_hand, vmap_by_hand
from benchmarks.population import conditions
from fedbook.experiment import commit
from fedbook.federation import Federation, Rounds, local
from fedbook.federation.local import epochs, local_steps, sgd
from fedbook.federation.population import Rows
from fedbook.federation.tree import Tree
from fedbook.learning.models import cross_entropy, model
from fedbook.papers.fedavg import Config, FedAvg
from fedbook.papers.fedavg.problem import ImageSettings, image_problem
from fedbook.partition import Partition
from fedbook.randomness import stream

CLIENTS, OWN, TOLERANCE, LOSS_TOLERANCE = (50, 200), 50, 1e-4, 1e-3
PEERS = {"Flower": ("flwr", "ray"), "pfl": ("pfl",)}  # by the packages that it needs
WANTED = ("flwr[simulation]==1.41.0", "pfl==0.6.0")
Way = Callable[[int], Tree]  # a round by its number, to the server's parameters after it


@lru_cache(maxsize=1)
def images(clients: int) -> dict[str, Tensor]:
    """The clients' images of MNIST, ``OWN`` each: x [K N, 1, 28, 28], y [K N]; client k has rows k N to (k + 1) N."""
    problem = image_problem("mnist", ImageSettings(partition="iid", clients=1))
    rows = torch.from_numpy(stream(0, "peers").permutation(len(problem.y))[: clients * OWN])
    return {"x": problem.x[rows], "y": problem.y[rows]}


def order(t: int, client: int) -> Tensor:
    """The order in which FedAvg's client takes its own samples in round t of seed 0."""
    return torch.from_numpy(stream(0, "batches", t, client).permuted(torch.arange(OWN).numpy()))


def start() -> Tree:
    """The parameters that all begin with."""
    return network().init(stream(0, "init"))


@lru_cache(maxsize=1)
def network() -> Any:
    return model("mlp", (1, 28, 28), 10)


def ours(clients: int) -> dict[str, Way]:
    """The package's round, its local training, and the ways that one can write by hand."""
    samples, net = images(clients), network()
    table, sizes = torch.arange(clients * OWN).view(clients, OWN), torch.full((clients,), OWN)
    run = Rounds(
        FedAvg(Config(rounds=10**6, batch_size=BATCH, lr=LR), net), Federation(samples, Partition(table, sizes)), 10**6
    )
    data, step = Rows(samples, table, sizes), sgd(cross_entropy(net.apply, net.layers), LR)
    how, chunk = local.choose("cpu", net.kind)

    def fedbook(t: int) -> Tree:
        run.step()
        return {name: v[0] for name, v in run.server["theta"].items()}

    def by_hand(way: Callable[[Setting], Tree]) -> Way:
        theta = start()

        def one(t: int) -> Tree:
            nonlocal theta
            carry = {"theta": {name: v.expand(clients, *v.shape) for name, v in theta.items()}}
            theta = way(Setting(net, step, carry, data, given(t), lambda h, fixed, y: F.cross_entropy(h, y)))
            return theta

        return one

    @lru_cache(maxsize=1)
    def given(t: int) -> Any:  # drawn before the clock runs
        return epochs(data, [stream(0, "batches", t, k) for k in range(clients)], 1, BATCH)

    fedbook.prepare = given

    def trained(one: Setting) -> Tree:
        theta = local_steps(one.step, one.carry, one.data, one.batches, how=how, chunk=chunk)[0]["theta"]
        return {name: v.mean(0) for name, v in theta.items()}

    return {
        "fedbook": fedbook,
        "local": by_hand(trained),
        "modules": by_hand(modules),
        "vmap": by_hand(vmap_by_hand),
        "stacked 10": by_hand(lambda one: stacked_by_hand(one, 10)),
    }


def pfl_research(clients: int) -> Way:
    """FederatedAveraging on the simulated backend, a central iteration a call."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Weighted
    from pfl.model.pytorch import PyTorchModel

    class Stop(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            return True, type(aggregate_metrics)()

    samples, module = images(clients), network().build()
    module.load_state_dict(start())
    module.loss = lambda x, y: F.cross_entropy(module(x), y)
    module.metrics = lambda x, y: {"loss": Weighted(F.cross_entropy(module(x), y).item() * len(y), len(y))}
    now = 0

    def dataset(k: int) -> Dataset:
        rows = k * OWN + order(now, k)
        return Dataset((samples["x"][rows], samples["y"][rows]), user_id=str(k))

    everyone = FederatedDataset(dataset, get_user_sampler("minimize_reuse", list(range(clients))))
    backend, algorithm = SimulatedBackend(everyone, everyone), FederatedAveraging()
    theirs = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    params = NNAlgorithmParams(10**9, 10**9, clients, None)
    train = NNTrainHyperParams(local_batch_size=BATCH, local_num_epochs=1, local_learning_rate=LR)

    def one(t: int) -> Tree:
        nonlocal now
        now = t
        evaluate = NNEvalHyperParams(local_batch_size=None)
        algorithm.run(params, backend, theirs, train, evaluate, [Stop()], send_metrics_to_platform=False)
        return {name: p.detach().clone() for name, p in module.named_parameters()}

    return one


class Flower:
    """The strategy FedAvg on Ray with one worker, in processes of its own that wait between rounds."""

    def __init__(self, clients: int):
        there, here = multiprocessing.get_context("spawn").Pipe()
        self.pipe = here
        self.process = multiprocessing.get_context("spawn").Process(target=_flower, args=(there, clients))
        self.process.start()
        there.close()
        self._answer()  # it is ready

    def __call__(self, t: int) -> Tree:
        self.pipe.send(t)
        return self._answer()

    def _answer(self) -> Tree:
        for _ in range(300):
            if self.pipe.poll(1):
                return self.pipe.recv()
            if not self.process.is_alive():
                break
        raise RuntimeError("Flower's simulation ended or did not answer in 300 s; see what it printed")

    def seconds(self) -> float:
        """Processor time of all its processes so far."""
        return tree_seconds(self.process.pid)

    def close(self) -> None:
        self.pipe.send(None)
        self.process.join(60)
        if self.process.is_alive():
            self.process.terminate()


def tree_seconds(root: int) -> float:
    """Processor time of a process and of all its living descendants, with the dead ones they waited for (Linux)."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = int(path.parent.name), path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        stats[pid] = int(rest[1]), sum(map(int, rest[11:15]))
    own = {root}
    while more := {pid for pid, (parent, _) in stats.items() if parent in own} - own:
        own |= more
    return sum(stats[pid][1] for pid in own if pid in stats) / os.sysconf("SC_CLK_TCK")


def _flower(pipe: Any, clients: int) -> None:
    """Flower's simulation; between rounds its strategy evaluates, which here is waiting for the next word."""
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    from flwr.app import ArrayRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg as Strategy
    from flwr.simulation import run_simulation

    class Over(Exception):
        pass

    def wait(t: int, arrays: ArrayRecord) -> None:
        pipe.send(dict(arrays.to_torch_state_dict()))
        if pipe.recv() is None:
            raise Over

    app = ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        strategy = Strategy(1.0, 0.0, min_train_nodes=clients, min_available_nodes=clients)
        with suppress(Over):
            strategy.start(grid, ArrayRecord(start()), num_rounds=10**6, evaluate_fn=wait)

    resources = {"init_args": {"num_cpus": 1, "log_to_driver": False}, "client_resources": {"num_cpus": 1}}
    run_simulation(app, _client_app(clients), clients, backend_config=resources)


def _client_app(clients: int) -> Any:
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        from benchmarks import peers  # in Ray's worker

        theta, k = message.content["arrays"].to_torch_state_dict(), context.node_config["partition-id"]
        theta = peers.client(theta, clients, k, message.content["config"]["server-round"] - 1)
        content = {"arrays": ArrayRecord(theta), "metrics": MetricRecord({"num-examples": peers.OWN})}
        return Message(content=RecordDict(content), reply_to=message)

    return app


def client(theta: Tree, clients: int, k: int, t: int) -> Tree:
    """A client's local training as everybody writes it."""
    torch.set_num_threads(1)
    samples, module, rows = images(clients), network().build(), k * OWN + order(t, k)
    module.load_state_dict(theta)
    optimiser = torch.optim.SGD(module.parameters(), lr=LR)
    for batch in rows.split(BATCH):
        optimiser.zero_grad()
        F.cross_entropy(module(samples["x"][batch]), samples["y"][batch]).backward()
        optimiser.step()
    return module.state_dict()


def absent() -> dict[str, str]:
    """The simulators that cannot be imported, with the reason."""
    reasons = {}
    for peer, packages in PEERS.items():
        for package in packages:
            try:
                __import__(package)
            except ImportError as error:
                reasons.setdefault(peer, str(error))
    return reasons


def row(clients: int, rounds: int, without: Sequence[str]) -> dict[str, Any]:
    """One number of clients: figures by way, and how far its parameters lie from the loop's in the end."""
    ways = ours(clients)
    prepare = ways["fedbook"].prepare
    if "pfl" not in without:
        ways["pfl"] = pfl_research(clients)
    flower = None if "Flower" in without else Flower(clients)
    if flower is not None:
        ways["Flower"] = flower
    clocks = {name: time.process_time for name in ways} | ({"Flower": flower.seconds} if flower else {})
    cpu, wall, theta, far = {name: [] for name in ways}, {name: [] for name in ways}, {}, {}
    try:
        for t in range(rounds + 1):
            prepare(t)
            for name, way in ways.items():
                begun = clocks[name](), time.perf_counter()
                theta[name] = way(t)
                took = clocks[name]() - begun[0], time.perf_counter() - begun[1]
                if t:
                    cpu[name].append(1000 * took[0])
                    wall[name].append(1000 * took[1])
            far = _apart(theta) if not t else far
    finally:
        if flower is not None:
            flower.close()
    figures = {name: _figures(cpu[name]) | {"wall": round(statistics.median(wall[name]), 1)} for name in ways}
    losses = {name: float(_loss(own, clients)) for name, own in theta.items()}
    for name, loss in losses.items():
        if abs(loss - losses["modules"]) > LOSS_TOLERANCE * losses["modules"]:
            raise RuntimeError(f"{name} ends at the loss {loss:.6f}, the loop at {losses['modules']:.6f}")
    return {"clients": clients, "ms": figures, "apart": far, "loss": {n: round(v, 6) for n, v in losses.items()}}


def _apart(theta: dict[str, Tree]) -> dict[str, float]:
    """The largest difference of each way's parameters from the loop's. Raises: RuntimeError."""
    loop = theta["modules"]
    far = {name: max(float((own[key] - loop[key]).abs().max()) for key in loop) for name, own in theta.items()}
    for name, distance in far.items():
        if distance > TOLERANCE:
            raise RuntimeError(f"{name} is {distance:.2g} from the loop after a round; allowed is {TOLERANCE:.0e}")
    return {name: float(f"{distance:.1e}") for name, distance in far.items()}


def _loss(theta: Tree, clients: int) -> Tensor:
    samples = images(clients)
    with torch.no_grad():
        return F.cross_entropy(network().apply(theta, samples["x"]), samples["y"])


def _figures(values: Sequence[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return {"median": round(middle, 1), "low": round(low, 1), "high": round(high, 1)}


def environment(folder: Path) -> Path:
    """The interpreter of the virtual environment ``folder``, made with the simulators if it is not there."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(folder, with_pip=True)
        words = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        site = Path(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
        (site / "calling.pth").write_text(sysconfig.get_path("purelib") + "\n")  # the same torch
        for package in WANTED:  # one by one: if one cannot be had, the other is measured
            subprocess.run([python, "-m", "pip", "install", "--quiet", package])
    return python


def lines(table: dict[str, Any]) -> Iterator[str]:
    """The table as text."""
    for one in table["rows"]:
        for name, ms in one["ms"].items():
            share = one["ms"]["modules"]["median"] / ms["median"] if ms["median"] else float("inf")
            yield (
                f"{one['clients']:>5} {name:11} {ms['median']:9.1f} ({ms['low']:.1f} to {ms['high']:.1f}) "
                f"wall {ms['wall']:9.1f}   loop / it {share:6.2f}   apart {one['apart'][name]:.0e}"
            )
    for name, reason in table["absent"].items():
        yield f"{name} was not measured: {reason}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, help="a folder for the simulators' virtual environment")
    parser.add_argument("--clients", default=",".join(map(str, CLIENTS)), help="how many, comma-separated")
    parser.add_argument("--rounds", type=int, default=15, help="of which the median counts")
    parser.add_argument("--write", type=Path, help="a JSON file")
    options = parser.parse_args(argv)
    if options.environment is not None:
        words = ["--clients", options.clients, "--rounds", str(options.rounds)]
        words += ["--write", str(options.write)] if options.write else []
        return subprocess.run([environment(options.environment), "-m", "benchmarks.peers", *words]).returncode
    torch.set_num_threads(1)
    without = absent()
    versions = {p: version(p) for packages in PEERS.values() for p in packages if p not in without and _has(p)}
    table = {"what": __doc__.splitlines()[0], "rounds": options.rounds, "commit": commit(), "machine": conditions()}
    table |= {"versions": versions, "absent": without}
    table["rows"] = []
    for count in options.clients.split(","):
        table["rows"].append(row(int(count), options.rounds, list(without)))
        table["machine"]["load_average_after"] = conditions()["load_average"]
        if options.write is not None:
            options.write.write_text(json.dumps(table, indent=1) + "\n")
    print("\n".join(lines(table)))
    return 0


def _has(package: str) -> bool:
    try:
        return bool(version(package))
    except ImportError:
        return False


if __name__ == "__main__":
    from benchmarks import peers  # Ray's worker finds functions by their module's name, which is not __main__

    sys.exit(peers.main())
