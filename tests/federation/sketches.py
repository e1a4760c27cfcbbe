"""The five papers' rounds as exchange generators, in the papers' order, with toy work.

They keep the loop honest: two exchanges with different cohorts, ragged uploads, personal state, sums
only, a server that trains too, empty cohorts. Line numbers are those of the papers' algorithm boxes.
"""

import numpy as np
import torch

from fedbook.federation import Chain, Cohort, Encoded, Everyone, Exchange, Federation, FixedSize, Poisson, Reply
from fedbook.federation.exchange import weighted_mean
from fedbook.federation.loop import no_setup
from fedbook.partition import Partition
from fedbook.privacy.ledger import Release
from fedbook.privacy.mechanisms import Clip
from fedbook.randomness import normal, stream

K, D = 6, 3


def toy_federation(sizes=(4, 2, 5, 1, 3, 4), groups=None, split_seeds=None):
    """K clients with random vectors x [N, D] and targets y [N]; rows in order of the clients."""
    n = sum(sizes)
    x = normal((n, D), stream(0, "toy x"))
    y = normal((n,), stream(0, "toy y"))
    starts = np.cumsum([0, *sizes])
    if split_seeds is None:
        partition = Partition.from_lists([list(range(a, b)) for a, b in zip(starts[:-1], starts[1:], strict=True)])
    else:
        partition = []
        for seed in split_seeds:
            order = stream(seed, "toy split").permutation(n)
            partition.append(Partition.from_lists([order[a:b] for a, b in zip(starts[:-1], starts[1:], strict=True)]))
    return Federation({"x": x, "y": y}, partition, groups)


def mean_rows(data, name="x"):
    """[R, ...] the mean of each client's own samples."""
    x, width = data.samples[name], data.table.shape[1]
    mask = (torch.arange(width) < data.sizes[:, None]).to(x.dtype)
    picked = x[data.table]
    mask = mask.view(*mask.shape, *[1] * (picked.ndim - 2))
    return (picked * mask).sum(1) / data.sizes.to(x.dtype).view(-1, *[1] * (picked.ndim - 2))


def pull(theta, local, rate=0.5):
    """Toy training: a step towards the mean of the client's samples, jittered by a keyed draw."""
    jitter = torch.stack([normal((D,), rng) for rng in local.streams("jitter")])
    return theta + rate * (mean_rows(local.data) - theta) + 0.01 * jitter


class Sketch:
    batched_seeds = True

    def configuration(self):
        return {"m": getattr(self, "m", 0)}

    def setup(self, server, turn):
        return no_setup(server)


class FedSC(Sketch):
    """Algorithm 1: matrices up from one cohort (everyone at first), then training on another exchange."""

    name = "toy_fedsc"

    def __init__(self, m=3):
        self.m = m

    def start(self, federation, turn):
        seeds = len(turn.seeds)
        server = {
            "theta": torch.zeros(seeds, D, dtype=torch.float64),
            "table": torch.zeros(seeds, K, D, D, dtype=torch.float64),
            "q": (federation.sizes.double() / federation.sizes.sum(1, keepdim=True)).expand(seeds, K).clone(),
        }
        return server, {"all": {"last": torch.zeros(seeds, K, D, D, dtype=torch.float64)}}

    def round(self, server, turn):
        trainers = turn.cohort(FixedSize(self.m))
        senders = turn.cohort(Everyone()) if turn.t == 0 else trainers  # lines 3-5
        up = yield Exchange(senders, down={"theta": server["theta"]}, work=self.upload, name="matrix")
        table = server["table"].clone()
        for s in range(len(turn.seeds)):  # lines 9, 14-17: stale entries stay
            for k, matrix in up.rows("R", s):
                table[s, k] = matrix
        R = torch.einsum("sk,skab->sab", server["q"], table)
        q = weighted_q(server["q"], trainers)
        up = yield Exchange(trainers, down={"theta": server["theta"], "R": R}, each={"q": q}, work=self.train)
        return server | {"theta": weighted_mean(up["theta"], trainers.present.double()), "table": table}

    def upload(self, local):
        x = mean_rows(local.data) - local.inbox["theta"]
        matrix = x[:, :, None] * x[:, None, :]
        return Reply(upload={"R": matrix}, state={"last": matrix})

    def train(self, local):
        q = local.inbox["q"][:, None, None]
        others = (local.inbox["R"] - q * local.state["last"]) / (1 - q)  # its own noisy upload leaves exactly
        theta = pull(local.inbox["theta"], local) - 0.1 * torch.einsum("rab,rb->ra", others, local.inbox["theta"])
        return Reply(upload={"theta": theta}, trace={"norm": others.flatten(1).norm(dim=1)})


def weighted_q(q, cohort):
    return torch.gather(q, 1, cohort.ids)


class HeteroSSFL(Sketch):
    """Algorithm 1: personal models of two widths; only similarity matrices of an alignment set meet."""

    name, widths, rad = "toy_hetero", {"narrow": 2, "wide": 4}, 5

    def __init__(self, m=3):
        self.m = m

    def start(self, federation, turn):
        seeds, clients = len(turn.seeds), {}
        for word, group in federation.groups.items():
            first = [normal((len(group.ids), D, self.widths[word]), stream(s, f"init {word}")) for s in turn.seeds]
            clients[word] = {"w": torch.stack(first), "x": torch.zeros(seeds, len(group.ids), self.rad, D).double()}
        server = {"gram": torch.zeros(seeds, K, self.rad, self.rad, dtype=torch.float64)}
        server["rad"] = torch.stack([normal((self.rad, D), stream(s, "alignment set")) for s in turn.seeds])
        return server, clients

    def setup(self, server, turn):
        up = yield Exchange(turn.cohort(Everyone()), down={"X": server["rad"]}, work=self.embed, name="alignment set")
        return server | {"gram": self.merge(server["gram"], up)}

    def round(self, server, turn):
        cohort = turn.cohort(FixedSize(self.m))
        up = yield Exchange(cohort, down={"kbar": server["gram"].mean(1)}, work=self.train)
        return server | {"gram": self.merge(server["gram"], up)}

    def merge(self, gram, up):
        gram = gram.clone()
        for s in range(len(gram)):
            for k, a in up.rows("A", s):
                gram[s, k] = a @ a.T
        return gram

    def embed(self, local):
        x, w = local.inbox["X"], local.state["w"]
        return Reply(upload={"A": x @ w}, state={"w": w, "x": x})

    def train(self, local):
        w, x, kbar = local.state["w"], local.state["x"], local.inbox["kbar"]
        w = w - 0.01 * x.mT @ (x @ w @ (x @ w).mT - kbar) @ (x @ w) + 0.01 * mean_rows(local.data)[:, :, None]
        return Reply(upload={"A": x @ w}, state={"w": w, "x": x})


class PriRFed(Sketch):
    """Algorithms 1 and 2 on the sphere: noise inside the local solver, tangent mean at the server."""

    name = "toy_prirfed"

    def __init__(self, m=2, sigma=0.3):
        self.m, self.sigma = m, sigma

    def start(self, federation, turn):
        x = torch.stack([normal((D,), stream(s, "init")) for s in turn.seeds])
        return {"x": x / x.norm(dim=1, keepdim=True)}, {}

    def round(self, server, turn):
        cohort = turn.cohort(FixedSize(self.m))  # line 2
        up = yield Exchange(cohort, down={"x": server["x"]}, work=self.solve)  # lines 3-4
        turn.release(gaussian("local iterate", self.sigma, unit="record", by="local_solver"), cohort)
        x = server["x"]
        tangent = sphere_log(x[:, None], up["x"])  # line 5
        return {"x": sphere_exp(x, weighted_mean(tangent, up["n"].double()))}

    def solve(self, local):
        x, target = local.inbox["x"], mean_rows(local.data)
        noise = torch.stack([normal((D,), rng) for rng in local.streams("solver noise")])
        step = 0.1 * (target + self.sigma * noise)
        step = step - (step * x).sum(1, keepdim=True) * x
        return Reply(upload={"x": sphere_exp(x, step), "n": local.data.sizes})


def sphere_exp(x, u):
    norm = u.norm(dim=-1, keepdim=True).clamp(min=1e-15)
    return torch.cos(norm) * x + torch.sin(norm) * u / norm


def sphere_log(x, y):
    part = y - (x * y).sum(-1, keepdim=True) * x
    norm = part.norm(dim=-1, keepdim=True).clamp(min=1e-15)
    return torch.atan2(norm, (x * y).sum(-1, keepdim=True)) * part / norm


class DP2FedSAM(Sketch):
    """Algorithm 2: personal heads, clipped body updates, the server sees a noisy sum, constant divisor."""

    name = "toy_dp2"

    def __init__(self, rate=0.4, clip=0.5, sigma=1.0):
        self.rate, self.clip, self.sigma = rate, clip, sigma

    def start(self, federation, turn):
        seeds = len(turn.seeds)
        body = torch.zeros(seeds, D, dtype=torch.float64)
        return {"body": body}, {"all": {"head": torch.ones(seeds, K, dtype=torch.float64)}}

    def round(self, server, turn):
        cohort = turn.cohort(Poisson(self.rate))  # step 1
        total = yield Exchange(
            cohort, down={"body": server["body"]}, work=self.train, reveal="sum",
            chain={"delta": Chain((Clip(self.clip),))}, like={"delta": server["body"][0]},
        )  # steps 2-6  # fmt: skip
        turn.release(
            gaussian("body updates", self.sigma, unit="client", by="server", sampler="poisson", rate=self.rate)
        )
        noise = torch.stack([normal((D,), rng) for rng in turn.noise_streams()])
        noisy = total["delta"] + self.sigma * self.clip * noise  # step 7: also for an empty cohort
        return {"body": server["body"] + noisy / (self.rate * K)}  # step 8

    def train(self, local):
        head = local.state["head"] * 0.9 + 0.1 * mean_rows(local.data, "y")
        body = pull(local.inbox["body"], local) * head[:, None]
        return Reply(upload={"delta": body - local.inbox["body"]}, state={"head": head})


def gaussian(what, sigma, unit, by, sampler="none", rate=None):
    return Release(
        mechanism="gaussian", what=what, unit=unit, sampler=sampler, rate=rate,
        adjacency="add_remove" if unit == "client" else "replace_one",
        noise_multiplier=sigma, sensitivity=1.0, released_by=by, trust="none" if by != "server" else "trusted_server",
    )  # fmt: skip


class HalfPrecision:
    """A codec with a wire format of 2 bytes a number."""

    def encode(self, message, rngs):
        rows = next(iter(message.values()))
        return [Encoded(r.to(torch.float16).contiguous().view(torch.uint8).flatten()) for r in rows]

    def decode(self, buffers, like):
        name, rows = next(iter(like.items()))
        out = [b.buffer.view(torch.float16).view(rows.shape[1:]).to(rows.dtype) for b in buffers]
        return {name: torch.stack(out)}


class CVFL(Sketch):
    """Algorithm 1: embeddings up encoded, everyone's view down, Q local steps; the server trains its block too."""

    name, q, width, samples = "toy_cvfl", 2, {"quadrant": 2, "text": 3}, 7

    def __init__(self, q=2):
        self.q = q

    def configuration(self):
        return {"q": self.q}

    @classmethod
    def federation(cls):
        parts = normal((2 * cls.samples, D), stream(0, "party x"))
        text = normal((cls.samples, 5), stream(0, "party text"))
        rows = [list(range(cls.samples)), list(range(cls.samples, 2 * cls.samples))]
        y = normal((cls.samples,), stream(0, "labels"))
        return Federation.of_groups(
            {
                "quadrant": ({"x": parts, "y": y.repeat(2)}, Partition.from_lists(rows)),
                "text": ({"x": text, "y": y}, Partition.from_lists([list(range(cls.samples))])),
            }
        )

    def start(self, federation, turn):
        seeds, clients = len(turn.seeds), {}
        for word, group in federation.groups.items():
            inputs = group.samples["x"].shape[1]
            first = [normal((len(group.ids), inputs, self.width[word]), stream(s, f"init {word}")) for s in turn.seeds]
            clients[word] = {"w": torch.stack(first)}
        return {
            "theta0": torch.ones(seeds, 7, dtype=torch.float64),
            "y": torch.zeros(seeds, self.samples).double(),
        }, clients

    def setup(self, server, turn):
        up = yield Exchange(Cohort.of([torch.tensor([0])] * len(turn.seeds)), work=self.labels, name="labels")
        return server | {"y": up["y"][:, 0]}

    def round(self, server, turn):
        everyone = turn.cohort(Everyone())
        ids = torch.stack([torch.from_numpy(rng.permutation(self.samples)[:4]) for rng in turn.streams("batch")])
        up = yield Exchange(
            everyone, down={"ids": ids}, work=self.embed, chain={"h": Chain(codec=HalfPrecision())}, name="embeddings"
        )
        wires = [up.relay("h", m) for m in range(3)]
        snapshot = server["theta0"].clone()
        down = {"ids": ids, "theta0": snapshot, "views": {str(m): w for m, w in enumerate(wires)}}
        yield Exchange(everyone, down=down, work=self.train, name="views")
        theta0 = server["theta0"]
        y = torch.gather(server["y"], 1, ids)
        z = torch.cat([wire.value for wire in wires], -1)
        for _ in range(self.q):  # the server's own block: from the same snapshot, on compressed views
            error = torch.einsum("sbp,sp->sb", z, theta0) - y
            theta0 = theta0 - 0.01 * torch.einsum("sbp,sb->sp", z, error)
        return server | {"theta0": theta0}

    def labels(self, local):
        return Reply(upload={"y": local.data.samples["y"][local.data.table]})

    def rows_of(self, local):
        return local.data.samples["x"][torch.gather(local.data.table, 1, local.inbox["ids"])]

    def embed(self, local):
        return Reply(upload={"h": self.rows_of(local) @ local.state["w"]})

    def train(self, local):
        w, x = local.state["w"], self.rows_of(local)
        y = local.data.samples["y"][torch.gather(local.data.table, 1, local.inbox["ids"])]
        own = local.clients.tolist()
        views = [local.inbox["views"][str(m)] for m in range(3)]
        starts = np.cumsum([0, 2, 2, 3])
        out = []
        for r, m in enumerate(own):
            theta, wr = local.inbox["theta0"][r], w[r]
            stale = (
                torch.cat([views[j][r] for j in range(3)], -1) @ theta - views[m][r] @ theta[starts[m] : starts[m + 1]]
            )
            for _ in range(self.q):
                mine = theta[starts[m] : starts[m + 1]]
                error = stale + x[r] @ wr @ mine - y[r]  # own block fresh and exact, the others stale
                wr = wr - 0.01 * x[r].T @ (error[:, None] * mine)
            out.append(wr)
        return Reply(state={"w": torch.stack(out)})


SKETCHES = {
    "fedsc": (lambda: FedSC(), toy_federation),
    "hetero_ssfl": (
        lambda: HeteroSSFL(),
        lambda: toy_federation(groups=["wide", "narrow", "wide", "narrow", "wide", "wide"]),
    ),
    "prirfed": (lambda: PriRFed(), toy_federation),
    "dp2_fedsam": (lambda: DP2FedSAM(), toy_federation),
    "cvfl": (lambda: CVFL(), CVFL.federation),
}
