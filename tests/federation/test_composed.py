"""Composition: what passes a chain, what it costs in bytes and in epsilon, and what is refused."""

import copy
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from fedbook.compression import HEADER_BYTES, AnyWidth, Codec, Summable, TopK, UniformScalar, compressor
from fedbook.federation import Chain, Everyone, Exchange, Reply, Rounds, run
from fedbook.federation.composed import Composed
from fedbook.federation.tree import leaves
from fedbook.papers.dp2_fedsam.algorithm import Config as PersonalConfig
from fedbook.papers.dp2_fedsam.algorithm import DP2FedSAM
from fedbook.papers.dp2_fedsam.problem import PersonalSettings, personal_problem
from fedbook.papers.fedavg import Config, FedAvg
from fedbook.papers.fedavg.problem import ImageSettings, image_problem
from fedbook.papers.fedsc import Config as ContrastiveConfig
from fedbook.papers.fedsc import FedSC
from fedbook.papers.fedsc.problem import PretrainingSettings, pretraining_problem
from fedbook.privacy import ClientGaussian, Clip, PrivacyLedger, Release
from fedbook.randomness import normal, stream
from tests.papers.hetero_ssfl import small

SCALAR, TOP = Codec(AnyWidth("scalar", 8)), Codec(AnyWidth("topk", 4))
NOISE = (Clip(1.0), ClientGaussian(1.0))
CLIENTS, WIDTH = 6, 64 * 10 + 10  # of the linear model on digits


def problem(dtype=torch.float64):
    settings = ImageSettings(partition="dirichlet", clients=CLIENTS, model="linear", train_samples=120)
    return image_problem("digits", settings, dtype=dtype)


IMAGES = problem()
AVERAGING = Config(rounds=2, local_epochs=1, batch_size=8, lr=0.2)


def averaged(chains=None, config=AVERAGING, data=IMAGES, **options):
    algorithm = FedAvg(config, data.model)
    if chains is not None:
        algorithm = Composed(algorithm, chains, **options)
    return run(Rounds(algorithm, data.federation(), config.rounds, seeds=(0, 1)))


PERSONAL = PersonalConfig(
    rounds=2, client_rate=0.5, head_epochs=1, body_epochs=1, batch_size=0, clip_norm=0.5, noise_multiplier=2.0,
    momentum=0.0, lr_body=0.3, lr_head=0.3,
)  # fmt: skip
PEOPLE = personal_problem(
    "digits", PersonalSettings(clients=10, train_samples=300, model="mlp16", partition="iid"), dtype=torch.float64
)
BODY = 64 * 16 + 16


def personal(chains=None, config=PERSONAL, method="dp2-fedsam", **options):
    algorithm = DP2FedSAM(config, PEOPLE.model, method)
    if chains is not None:
        algorithm = Composed(algorithm, chains, **options)
    return run(Rounds(algorithm, PEOPLE.federation(), config.rounds, noise_key="seed"))


def contrastive(chains=None, public=(), **changes):
    tiny = PretrainingSettings(
        clients=3, partition="iid", train_samples=60, test_samples=20, bank=4, width=6, projector="linear"
    )
    data = pretraining_problem("digits", tiny, (0,), dtype=torch.float64)
    config = ContrastiveConfig(**({"rounds": 2, "batch_size": 10, "local_epochs": 1, "matrix_views": 2} | changes))
    algorithm = FedSC(config, data.encoder, data.views)
    if chains is not None:
        algorithm = Composed(algorithm, chains, public=public)
    return run(Rounds(algorithm, data.federation(), config.rounds))


def hetero(chains=None, send="representations"):
    algorithm = small.algorithm(replace(small.PLAIN, send=send))
    if chains is not None:
        algorithm = Composed(algorithm, chains)
    return run(Rounds(algorithm, small.SMALL.federation(), small.PLAIN.rounds))


def scaffold(chains=None):
    names = {}
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    exec(re.search(r"```python\n(.*?)```", text, re.S)[1], names)
    algorithm = names["Scaffold"](AVERAGING, IMAGES.model)
    if chains is not None:
        algorithm = Composed(algorithm, chains)
    return run(Rounds(algorithm, IMAGES.federation(), AVERAGING.rounds))


@dataclass(frozen=True)
class Same:
    """A step of one's own that changes nothing."""

    def __call__(self, message, rngs):
        return message, {}


def far(one, other):
    """The largest difference of two runs' server states."""
    pairs = zip(leaves(one.server), leaves(other.server), strict=True)
    return max(float((a - b).abs().max()) for (_, a), (_, b) in pairs if a.is_floating_point())


def up(rounds):
    return rounds.bytes.total["rounds"]["up"][0]


def epsilon(rounds, delta=1e-3):
    return rounds.privacy[0].report(delta)["epsilon"]


# --- it composes


@pytest.mark.parametrize("make", [averaged, personal, contrastive, hetero, scaffold], ids=lambda f: f.__name__)
def test_every_horizontal_algorithm_takes_a_compressor(make):
    plain, same, fine, coarse = (
        make(chains)
        for chains in (
            None,
            {"*": Chain()},
            {"*": Chain(codec=Codec(AnyWidth("scalar", 16)))},
            {"*": Chain(codec=SCALAR)},
        )
    )
    assert far(plain, same) == 0 and up(plain) == up(same)
    assert 0 < far(plain, fine) < far(plain, coarse) and up(coarse) < up(fine) < up(plain)


def test_fewest_and_most_components():
    plain, whole = (
        averaged(),
        averaged({"theta": Chain(codec=Codec(AnyWidth("topk", 32)))}, data=problem(torch.float32)),
    )
    assert far(averaged(data=problem(torch.float32)), whole) < 1e-6
    nothing = averaged({"theta": Chain((Clip(1e-300),), Codec(TopK(1)))})
    start = Rounds(FedAvg(AVERAGING, IMAGES.model), IMAGES.federation(), 0, seeds=(0, 1))
    assert far(start, nothing) < 1e-12 < far(start, plain)  # the change was clipped away, not the parameters


def test_fedavg_with_top_k_is_the_plain_loop():
    """theta <- theta + sum_k (n_k / n) top_k(theta_k - theta), and every byte of the messages is counted."""
    k = WIDTH * 4 // 32
    sent, recorded = averaged({"theta": Chain(codec=TOP)}), []

    def observe(exchange, uploads):
        recorded.append(uploads["theta"])

    one = replace(AVERAGING, rounds=1)
    run(Rounds(FedAvg(one, IMAGES.model), IMAGES.federation(), 1, observe=observe))
    theta = {
        name: p[0] for name, p in Rounds(FedAvg(one, IMAGES.model), IMAGES.federation(), 0).server["theta"].items()
    }
    names, sizes = sorted(theta), IMAGES.partitions[0].sizes.double()
    change = torch.cat([(recorded[0][name][0] - theta[name]).flatten(1) for name in names], 1)
    kept = torch.zeros_like(change)
    for row, new in zip(change, kept, strict=True):
        for place in row.abs().argsort(descending=True)[:k]:
            new[place] = float(row[place].float())
    expected = torch.cat([theta[name].flatten() for name in names]) + (sizes / sizes.sum()) @ kept
    short = run(Rounds(Composed(FedAvg(one, IMAGES.model), {"theta": Chain(codec=TOP)}), IMAGES.federation(), 1))
    got = torch.cat([short.server["theta"][name][0].flatten() for name in names])
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    index = min(math.ceil(k * 10 / 8), math.ceil(WIDTH / 8))  # a list of ten bits an entry, or a bitmap
    each = HEADER_BYTES + index + 4 * k + 8  # the weight n_k goes as it is
    assert up(sent) == AVERAGING.rounds * CLIENTS * each


def test_a_composed_run_resumes_and_is_no_other_run(tmp_path):
    def rounds(total, **options):
        algorithm = Composed(FedAvg(AVERAGING, IMAGES.model), {"*": Chain(codec=SCALAR)})
        return Rounds(algorithm, IMAGES.federation(), total, path=tmp_path / "run", **options)

    whole = run(Rounds(copy.copy(rounds(0).algorithm), IMAGES.federation(), 2))
    run(rounds(1))
    assert far(run(rounds(2, resume=True)), whole) == 0
    with pytest.raises(Exception, match="composed"):
        Rounds(FedAvg(AVERAGING, IMAGES.model), IMAGES.federation(), 2, path=tmp_path / "run", resume=True)


# --- the order of clip, noise and codec


def test_after_the_noise_a_codec_costs_nothing():
    """Post-processing: epsilon is that of clip and noise, to the last digit; under it the message shrinks."""
    steps = (Clip(0.5), ClientGaussian(2.0))
    noised, coarse = (
        averaged({"theta": Chain(steps, codec)}, public=("weight",)) for codec in (None, Codec(AnyWidth("scalar", 2)))
    )
    by_hand = PrivacyLedger()
    release = Release(
        what="x", unit="client", adjacency="replace_one", noise_multiplier=2.0 / (2 * 0.5), sensitivity=2 * 0.5,
        trust="none", released_by="client",
    )  # fmt: skip
    for _ in range(AVERAGING.rounds):
        by_hand.record(release, torch.arange(CLIENTS))
    assert epsilon(noised) == epsilon(coarse) == by_hand.report(1e-3)["epsilon"]
    assert up(coarse) < up(noised) / 20 and noised.privacy[0].report(1e-3)["in_clear"] == []


def test_before_the_noise_a_codec_lengthens_the_update():
    """The release carries C' = C + the codec's largest error: what the server's noise then hides."""
    plain = personal()
    figures = []
    for bits in (2, 4, 8, 16):
        rounds = personal({"change": Chain(codec=Codec(AnyWidth("scalar", bits)))})
        (entry,) = rounds.privacy[0].report(1e-3)["released"]
        longest = 0.5 + UniformScalar(bits, -0.5, 0.5).largest_error(BODY)
        assert entry["sensitivity"] == pytest.approx(longest) and longest > 0.5
        assert entry["noise_multiplier"] * longest == pytest.approx(2.0 * 0.5)  # the noise is what it was
        figures.append(epsilon(rounds))
    assert figures == sorted(figures, reverse=True) and figures[-1] > epsilon(plain)
    assert figures[-1] == pytest.approx(epsilon(plain), rel=0.01)
    with pytest.raises(ValueError, match="low and high: got .0.4, 0.5.; allowed is a range that holds 0"):
        personal({"change": Chain(codec=Codec(compressor("scalar", 16, 1, 0.4, 0.5)))})


def test_a_shorter_clip_brings_the_guarantee_back():
    unit, plain = UniformScalar(8, -1.0, 1.0).largest_error(BODY), personal()
    by_hand = personal({"change": Chain((Clip(0.5 / (1 + unit)),), SCALAR)})
    kept = personal({"*": Chain(codec=SCALAR)}, keep=True)
    assert far(by_hand, kept) < 1e-12 < far(kept, plain)
    assert epsilon(by_hand) == pytest.approx(epsilon(plain), rel=1e-9) == epsilon(kept)


def test_a_setting_of_the_command_line_compresses_within_the_budget():
    from fedbook.experiment import plan
    from fedbook.papers.dp2_fedsam import PAPER

    small = {"rounds": 3, "clients": 20, "train_samples": 400, "epsilon": 2.0, "evaluate_every": 3, "client_rate": 0.5}
    plain, coarse = (
        run(plan(PAPER, "dp2-fedsam", "digits", "quick", small | more).rounds())
        for more in ({}, {"compressor": "scalar", "bits": 6})
    )
    assert coarse.t == 3 and up(coarse) < up(plain) / 2
    for method, more, word in (("dp2-fedsam", {"compressor": "topk"}, "scalar or none"),
                               ("fedavg", {"compressor": "scalar"}, "no clip")):  # fmt: skip
        with pytest.raises(ValueError, match=f"^compressor: got .*{word}"):
            plan(PAPER, method, "digits", "quick", small | more).rounds()
    assert epsilon(coarse) == pytest.approx(epsilon(plain), rel=1e-6) and epsilon(plain) < 2
    with pytest.raises(ValueError, match="bits: got 17"):
        plan(PAPER, "dp2-fedsam", "digits", "quick", small | {"compressor": "scalar", "bits": 17})


def test_shares_of_the_noise_do_not_survive_rounding():
    """A sum of rounded messages is no function of the noised sum: what is left is each client's own share."""
    config = replace(PERSONAL, sampling="fixed", noise_by="clients")
    plain, composed = personal(config=config), personal({"change": Chain(codec=SCALAR)}, config)
    (entry,) = composed.privacy[0].report(1e-3)["released"]
    assert entry["trust"] == "none" and epsilon(composed) > epsilon(plain)
    assert entry["noise_multiplier"] == pytest.approx(2.0 / 2 / math.sqrt(0.5 * 10))  # sigma C / sqrt(r N) over 2 C


def test_what_is_composed_comes_after_the_algorithms_own_steps():
    config = replace(PERSONAL, sampling="fixed", noise_by="clients")
    start, noised = personal(config=replace(config, rounds=0)), personal(config=config)
    still = personal({"change": Chain((Clip(1e-9),))}, config)  # the noise is clipped away with the change
    assert far(start, still) < 1e-8 < far(start, noised)
    assert still.privacy[0].report(1e-3)["trust"] != noised.privacy[0].report(1e-3)["trust"]


class Noisy(FedAvg):
    """A server that adds noise to a sum of clipped changes, and enters it before or after the sum is there."""

    late, says, own = True, ("change",), {"change": Chain((Clip(1.0),))}

    def start(self, federation, turn):
        return {"x": torch.zeros(len(turn.seeds), 50).double()}, {}

    def round(self, server, turn):
        form = dict.fromkeys(self.says, server["x"][0])
        exchange = Exchange(turn.cohort(Everyone()), work=self.train, reveal="sum", chain=self.own, like=form)
        if not self.late:
            turn.release(SUM)
        total = yield exchange
        if self.late:
            turn.release(SUM)
        return {"x": total[next(iter(self.own), "change")]}

    def train(self, local):
        return Reply(upload={"change": torch.ones(len(local.clients), 50).double()})


SUM = Release(
    what="a sum", unit="client", adjacency="add_remove", noise_multiplier=2.0, sensitivity=1.0,
    trust="secure_aggregation",
)  # fmt: skip


def test_one_release_of_two_uploads_counts_what_both_are_lengthened_by():
    class Two(Noisy):
        own, says = {"a": Chain((Clip(1.0),)), "b": Chain((Clip(1.0),))}, ("a", "b")

        def train(self, local):
            (upload,) = super().train(local).upload.values()
            return Reply(upload={"a": upload, "b": upload})

    rounds = Rounds(Composed(Two(AVERAGING, IMAGES.model), {"*": Chain(codec=SCALAR)}), IMAGES.federation(), 1)
    (entry,) = run(rounds).privacy[0].report(1e-3)["released"]
    one = 1 + UniformScalar(8, -1.0, 1.0).largest_error(50)
    assert entry["sensitivity"] == pytest.approx(math.sqrt(2) * one)


def test_a_release_at_the_start_is_entered():
    class Early(FedAvg):
        def start(self, federation, turn):
            turn.release(Release("a noised count", "client", "add_remove", 2.0, 1.0, "trusted_server"))
            return super().start(federation, turn)

    plain, composed = (
        Rounds(make(Early(AVERAGING, IMAGES.model)), IMAGES.federation(), 1)
        for make in (lambda algorithm: algorithm, lambda algorithm: Composed(algorithm, {"theta": Chain(codec=TOP)}))
    )
    assert composed.privacy[0].report(1e-3)["released"] == plain.privacy[0].report(1e-3)["released"] != []
    with pytest.raises(ValueError, match="adds and accounts its own"):
        Rounds(Composed(Early(AVERAGING, IMAGES.model), {"theta": Chain(NOISE)}), IMAGES.federation(), 1)


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("name", ["change", "*", "train/change"])
def test_a_release_is_restated_whenever_it_is_entered(late, name):
    algorithm = Noisy(AVERAGING, IMAGES.model)
    algorithm.late = late
    rounds = run(Rounds(Composed(algorithm, {name: Chain(codec=SCALAR)}), IMAGES.federation(), 1))
    (entry,) = rounds.privacy[0].report(1e-3)["released"]
    assert entry["sensitivity"] == pytest.approx(1 + UniformScalar(8, -1.0, 1.0).largest_error(50))
    for algorithm.says in ((), ("another",)):  # how long an update can get is not known
        with pytest.raises(ValueError, match="like|Clip before it"):
            run(Rounds(Composed(algorithm, {name: Chain(codec=SCALAR)}), IMAGES.federation(), 1))
    algorithm.own = {}  # and here not even that there is one
    with pytest.raises(ValueError, match="like"):
        run(Rounds(Composed(algorithm, {name: Chain(codec=Codec(UniformScalar(8)))}), IMAGES.federation(), 1))


def test_what_a_client_takes_off_the_average_arrives_as_it_was_sent():
    """FedSC's clients subtract their own noised matrix: what is on all uploads passes it over."""
    noised = {"sigma": 0.5, "noise": "paper"}
    plain, coarse = contrastive(**noised), contrastive({"*": Chain(codec=TOP)}, **noised)
    assert torch.equal(coarse.server["table"][0], coarse.clients["all"]["matrix"][0]) and up(coarse) < up(plain)
    reports = [rounds.privacy[0].report(1e-3)["epsilon_of_releases"] for rounds in (plain, coarse)]
    assert reports[0] == reports[1] > 0
    for name in ("matrix", "matrices/matrix"):
        with pytest.raises(ValueError, match="take off from the average"):
            contrastive({name: Chain(codec=SCALAR)}, **noised)


def test_noise_on_symmetric_matrices_goes_up_as_their_symmetric_part():
    plain, noised = hetero(send="kernels"), hetero({"representation": Chain(NOISE)}, "kernels")
    (entry,) = noised.privacy[0].report(1e-3)["released"]
    assert entry["noise_multiplier"] == 0.5 and up(noised) == up(plain)


@pytest.mark.parametrize("compressor", ["scalar", "hex", "topk"])
def test_a_run_that_diverges_says_so_with_a_codec_too(compressor):
    wild, codec = FedAvg(replace(AVERAGING, lr=1e38), IMAGES.model), Codec(AnyWidth(compressor, 8))
    rounds = run(Rounds(Composed(wild, {"*": Chain(codec=codec)}), IMAGES.federation(), 9))
    assert rounds.diverged and "theta" in rounds.stopped


def test_an_upload_of_one_exchange_is_named_with_it():
    rounds = contrastive({"train/theta": Chain(NOISE, SCALAR)}, ("matrix",))
    (entry,) = rounds.privacy[0].report(1e-3)["released"]
    assert entry["count"] == 2 and entry["noise_multiplier"] == 0.5  # once a round; std / (2 C)


@pytest.mark.parametrize("parties", [1, 2, 1000])
def test_summable_codes_leave_room_for_the_sum(parties):
    quantiser = UniformScalar(5, -1.0, 1.0)
    made, x = Summable(quantiser, parties), normal((3, 2, 7), stream(0, "x"), torch.zeros(1)).mul_(0.3)
    sent, alone = (c.encode(x, [stream(k, "dither") for k in range(3)]) for c in (made, quantiser))
    assert torch.equal(made.decode(sent, x), quantiser.decode(alone, x))
    assert {b.nbytes for b in sent} == {HEADER_BYTES + math.ceil(14 * (5 + math.ceil(math.log2(parties))) / 8)}
    assert float(made.decode(made.encode(x * 9, [stream(k, "d") for k in range(3)]), x).abs().max()) <= 1.04
    with pytest.raises(ValueError, match="buffer"):
        quantiser.decode(sent, x)


# --- what cannot be composed


REFUSED = {
    "no such upload": (lambda: averaged({"thta": Chain(codec=TOP)}), "chains: got .'thta'.*'theta', 'weight'"),
    "client state": (lambda: personal({"own": Chain(codec=SCALAR)}), "chains: got .'own'"),
    "a second wire format": (lambda: hetero({"representation": Chain(codec=SCALAR)}, "kernels"), "wire format of its"),
    "noise without clip": (lambda: averaged({"theta": Chain((ClientGaussian(1.0),))}), "right after a Clip"),
    "a compressor for a codec": (lambda: averaged({"theta": Chain(codec=UniformScalar(8))}), "compression.Codec of it"),
    "a codec among the steps": (lambda: averaged({"theta": Chain((SCALAR,))}), "a codec stands after them"),
    "noise, then clip": (lambda: averaged({"theta": Chain(NOISE[::-1])}), "right after a Clip"),
    "two noises": (lambda: averaged({"theta": Chain(NOISE * 2)}), "one ClientGaussian"),
    "noise on whatever comes": (lambda: averaged({"*": Chain(NOISE)}), "each by itself"),
    "something in clear": (lambda: averaged({"theta": Chain(NOISE)}), "without noise: got .'weight'"),
    "a second noise": (lambda: personal({"change": Chain(NOISE)}), "adds and accounts its own"),
    "another exchange": (lambda: contrastive({"theta": Chain(NOISE)}, ("matrix",)), "EXCHANGE/NAME"),
    "a step whose length nobody knows": (
        lambda: personal({"change": Chain((Same(),))}),
        "the noise on 'change' comes after it",
    ),
    "a sum of sparse messages": (lambda: personal({"change": Chain(codec=TOP)}), "a scalar quantiser"),
    "a sum of own ranges": (
        lambda: personal({"change": Chain(codec=SCALAR)}, method="fedrep"), "fixed range under reveal"),
    "a sum of weighted parameters": (
        lambda: averaged({"theta": Chain((Clip(1.0),), SCALAR)}, replace(AVERAGING, reveal="sum")),
        "reveal: got 'sum'",
    ),
    "another form": (lambda: averaged({"weight": Chain(codec=SCALAR)}), "message ''|rows"),
    "another name in each run": (lambda: averaged({"theta": Chain((lambda message, rngs: (message, {}),))}), "repr"),
    "no chain": (lambda: averaged({"theta": TOP}), "a Chain"),
    "no words": (lambda: averaged({"theta": Chain()}, changes="theta"), "changes: got 'theta'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_composed_is_refused(case):
    make, message = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_an_upload_whose_name_would_mean_another_exchange_is_refused():
    class Slashed(FedAvg):
        def train(self, local):
            reply = super().train(local)
            return replace(reply, upload={"head/theta": reply.upload["theta"], "weight": reply.upload["weight"]})

    chains = {"head/theta": Chain(NOISE)}
    algorithm = Composed(Slashed(AVERAGING, IMAGES.model), chains, public=("weight",))
    with pytest.raises(ValueError, match="uploads: got .'head/theta'.*without '/'"):
        run(Rounds(algorithm, IMAGES.federation(), 1))


def test_an_unprotected_upload_never_crosses():
    seen = []
    algorithm = Composed(FedAvg(AVERAGING, IMAGES.model), {"theta": Chain(NOISE)})
    rounds = Rounds(algorithm, IMAGES.federation(), 1, observe=lambda *message: seen.append(message))
    with pytest.raises(ValueError, match="without noise"):
        run(rounds)
    assert seen == [] and rounds.bytes.total["rounds"]["up"] == [0]
