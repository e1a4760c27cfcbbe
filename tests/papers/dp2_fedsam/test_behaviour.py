"""What chapter 4 claims of small runs, with wide margins; stopping and resuming."""

import pytest
import torch
from torch.func import vmap

from fedbook import papers
from fedbook.experiment import plan
from fedbook.federation import run, tree_map
from fedbook.federation.tree import leaves
from fedbook.intervals import paired_difference
from fedbook.lab.results import scores, stored
from fedbook.papers.dp2_fedsam import problem_of
from fedbook.papers.dp2_fedsam.sharpness import gaussian_rise
from fedbook.randomness import stream

PAPER = papers.paper("dp2_fedsam")
SEEDS = (20, 21, 22)  # not those of the stored tables


def planned(method, seeds=SEEDS, **changes):
    return plan(PAPER, method, "digits", "standard", {"epsilon": 0.0, "evaluate_every": 40} | changes, seeds, "cpu")


def finished(method, seeds=SEEDS, **changes):
    return run(planned(method, seeds, **changes).rounds())


def accuracy(rounds):
    return rounds.history.values("accuracy")[1][:, -1]


def client_loss(problem, rounds, slot):
    """The mean training loss of all clients of one federation as a function of the body; and that body."""
    net, own = problem.model, tree_map(lambda p: p[slot], rounds.clients["all"]["own"])
    table, sizes = problem.train[slot].table, problem.train[slot].sizes
    x, y = problem.x[table].flatten(0, 1), problem.y[table]
    real = (torch.arange(table.shape[1]) < sizes[:, None]).to(x)
    share = real / real.sum(1, keepdim=True) / len(table)

    def loss(body):
        logits = vmap(net.classify)(own, net.features(body, x).unflatten(0, table.shape)).flatten(0, 1)
        return (torch.nn.functional.cross_entropy(logits, y.flatten(), reduction="none") * share.flatten()).sum()

    return loss, tree_map(lambda p: p[slot], rounds.server["shared"])


def by_clip_and_radius(table):
    """(C, q) -> the accuracy of each seed, of DP2-FedSAM."""
    cells = [cell for cell in table["cells"] if cell["method"] == "dp2-fedsam"]
    return {(c["varied"]["clip_norm"], c["varied"]["sam_radius"]): scores(c, "accuracy").tolist() for c in cells}


@pytest.fixture(scope="module")
def plain():
    return {m: finished(m) for m in ("fedavg", "fedrep", "frozen-body")}


@pytest.mark.slow
def test_personal_heads_beat_one_private_model_by_far():
    ours, one = (finished(m, epsilon=2.0, clip_norm=0.5) for m in ("dp2-fedsam", "dp-fedavg"))
    assert float((accuracy(ours) - accuracy(one)).mean()) >= 0.15


@pytest.mark.slow
def test_sharing_only_the_body_shortens_the_updates(plain):
    length = {m: sum(sum(r.trace["update_norm"]) for r in plain[m].history) for m in ("fedavg", "fedrep")}
    assert length["fedrep"] < 0.5 * length["fedavg"]


@pytest.mark.slow
def test_a_frozen_random_body_is_far_above_chance_and_below_a_trained_one(plain):
    frozen, trained = accuracy(plain["frozen-body"]), accuracy(plain["fedrep"])
    assert float(frozen.mean()) > 0.7 and float((trained - frozen).mean()) > 0.03


@pytest.mark.slow
def test_sam_bodies_lose_less_to_noise():
    data = problem_of("digits", planned("p-fedsam").settings(), SEEDS, "cpu")
    rises = []
    for radius in (0.0, 0.2):
        rounds = finished("p-fedsam", sam_radius=radius)
        for slot in range(len(SEEDS)):
            loss, body = client_loss(data, rounds, slot)
            rises.append(float(gaussian_rise(loss, body, 0.1, 40, stream(slot, "rise")).mean))
    assert all(sam < 0.8 * sgd for sgd, sam in zip(rises[:3], rises[3:], strict=True))


def test_the_stored_gain_of_sam_depends_on_the_clip_norm():
    cells = by_clip_and_radius(stored("04_radius"))
    helps = paired_difference(cells[1.0, 0.2], cells[1.0, 0.0])
    hurts = paired_difference(cells[0.1, 0.2], cells[0.1, 0.0])
    assert helps.low > 0 > hurts.high


def test_a_stopped_and_resumed_run_is_the_uninterrupted_one(tmp_path):
    changes = {"epsilon": 2.0, "noise_multiplier": 3.5, "rounds": 40, "body_epochs": 1, "head_epochs": 1}
    whole = run(planned("dp2-fedsam", (0,), **changes).rounds())
    assert whole.stopped and 5 < whole.t < 40
    path = tmp_path / "checkpoint.pt"
    first = planned("dp2-fedsam", (0,), **changes).rounds(path=path)
    for record in first:
        if record.t == 3:
            break
    second = run(planned("dp2-fedsam", (0,), **changes).rounds(path=path, resume=True))
    third = run(planned("dp2-fedsam", (0,), **changes).rounds(path=path, resume=True))  # nothing is left to spend
    for again in (second, third):
        same = [tree_map(torch.equal, a, b) for a, b in ((whole.server, again.server), (whole.clients, again.clients))]
        assert all(value for tree in same for _, value in leaves(tree))
        assert again.stopped == whole.stopped and again.history == whole.history
        assert again.privacy[0].report(1e-3) == whole.privacy[0].report(1e-3)
