"""Records that listed clients draw themselves: client by client, with amplification where it is proved."""

import io
import json
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbook import privacy
from fedbook.papers.prirfed.local_call import calibrated_sigma_rsgd, call_epsilon, rsgd_parts, rsvrg_parts
from fedbook.privacy import ledger as ledger_module
from fedbook.privacy.accountant import Draws, total_epsilon
from fedbook.privacy.cohorts import largest

DELTA = 1e-4
PLAIN = privacy.Release("the iterates", "record", "replace_one", 40.0, 0.01, "none", released_by="local_solver")
DRAWN = replace(PLAIN, what="the drawn records", noise_multiplier=2.0, sampler="fixed", rate=0.02, count=30)


def ids(*clients):
    return torch.tensor(clients, dtype=torch.long)


def reloaded(ledger):
    file = io.BytesIO()
    torch.save(ledger.state(), file)
    file.seek(0)
    return privacy.PrivacyLedger.from_state(torch.load(file, weights_only=True))


def entered(parts, **changes):
    """The releases of one local call."""
    names = ("noise_multiplier", "sampler", "rate", "count")
    return [replace(PLAIN, **dict(zip(names, part, strict=True)), **changes) for part in parts]


def test_full_batch_calls_cost_what_the_busiest_client_pays():
    sigma = calibrated_sigma_rsgd(0.15, DELTA, 250, 250, 1.0, 3)
    (release,) = entered(rsgd_parts(sigma, 250, 250, 1.0, 3))
    ledger = privacy.PrivacyLedger()
    for t, cohort in enumerate([(0, 1), (1, 2), (1, 3), (0, 4)]):
        ledger.record(replace(release, round=t), ids(*cohort))
    mu = 1 / privacy.calibrate(0.15, DELTA)
    assert ledger.report(DELTA)["epsilon"] == pytest.approx(privacy.exact_epsilon(math.sqrt(3) * mu, DELTA), rel=1e-9)
    assert ledger.report(DELTA)["accountant"] == "exact"


def test_minibatches_of_listed_clients_are_amplified():
    parts = rsgd_parts(0.6, 250, 25, 1.0, 3)
    ledger = privacy.PrivacyLedger()
    for t, cohort in enumerate([(0, 1), (1,), (1, 2)]):
        for release in entered(parts, round=t):
            ledger.record(release, ids(*cohort))
    report = ledger.report(DELTA)
    expected = privacy.sampled_epsilon(parts[0].noise_multiplier, 0.1, 9, DELTA, "fixed")
    assert report["epsilon"] == report["epsilon_rdp"] == expected and report["accountant"] == "rdp"
    plain = privacy.gaussian_epsilon(parts[0].noise_multiplier, 9, DELTA)
    assert report["epsilon_without_amplification"] == pytest.approx(plain, rel=1e-12) and expected < plain
    assert report["not_counted"] == [] and report["sampler"] == "fixed"
    conditions = " ".join(report["conditions"])
    assert "it may be known" in conditions and "fixed at rate 0.1, drawn afresh each time" in conditions
    assert "which records were drawn" in conditions and "secure aggregation" not in conditions
    assert "nothing hidden that they carry from round to round" in conditions


def test_both_parts_of_a_variance_reduced_call_add_up():
    parts = rsvrg_parts(8.0, 100, 1.0, 1.0, 3, 10, 0.2)
    ledger = privacy.PrivacyLedger()
    for release in entered(parts):
        ledger.record(release, ids(4, 7))
    report = ledger.report(DELTA)
    assert report["epsilon"] == pytest.approx(call_epsilon(parts, DELTA), rel=1e-12)
    mu = math.sqrt(30) * 0.02 / math.sqrt(0.2) / 8.0
    drawn = Draws("fixed", 0.01, math.sqrt(0.8) * 8.0 / 4, 30)
    assert report["epsilon"] == pytest.approx(total_epsilon((drawn,), mu, DELTA).epsilon, rel=1e-9)
    whole = math.hypot(mu, math.sqrt(30) * 4 / 8.0 / math.sqrt(0.8))
    assert report["epsilon_without_amplification"] == pytest.approx(privacy.exact_epsilon(whole, DELTA), rel=1e-9)
    assert report["sampler"] == "fixed, none"


def test_the_smaller_figure_counts_where_a_draw_does_not_help():
    loose = replace(DRAWN, rate=0.6, noise_multiplier=30.0)
    ledger = privacy.PrivacyLedger()
    ledger.record(loose, ids(1))
    report = ledger.report(DELTA)
    assert report["accountant"] == "exact"
    assert report["epsilon"] == report["epsilon_without_amplification"] < report["epsilon_rdp"]


def test_the_worst_client_need_not_be_the_busiest():
    ledger = privacy.PrivacyLedger()
    for _ in range(40):
        ledger.record(replace(PLAIN, noise_multiplier=200.0), ids(0))  # often, and cheap
    ledger.record(DRAWN, ids(1, 2))
    ledger.record(replace(PLAIN, noise_multiplier=20.0), ids(2))
    drawn = Draws("fixed", 0.02, 2.0, 30)
    assert ledger.report(DELTA)["epsilon"] == total_epsilon((drawn,), 1 / 20, DELTA).epsilon
    plain = math.hypot(1 / 20, math.sqrt(30) / 2)
    assert ledger.report(DELTA)["epsilon_without_amplification"] == pytest.approx(
        privacy.exact_epsilon(plain, DELTA), rel=1e-12
    )


def test_draws_of_everyone_and_of_one_client_add_up():
    ledger = privacy.PrivacyLedger()
    ledger.record(DRAWN)
    ledger.record(replace(DRAWN, count=5), ids(3))
    ledger.record(replace(DRAWN, count=7, rate=0.01), ids(3, 4))
    draws = (Draws("fixed", 0.01, 2.0, 7), Draws("fixed", 0.02, 2.0, 35))
    assert ledger.report(DELTA)["epsilon"] == total_epsilon(draws, 0.0, DELTA).epsilon


def test_emptied_records_take_half_the_multiplier():
    ledger = privacy.PrivacyLedger()
    ledger.record(replace(DRAWN, adjacency="zero_out"), ids(0))
    drawn = Draws("fixed", 0.02, 2.0, 30, emptied=True)
    assert ledger.report(DELTA)["epsilon"] == total_epsilon((drawn,), 0.0, DELTA).epsilon
    assert total_epsilon((replace(drawn, emptied=False),), 0.0, DELTA).epsilon < ledger.report(DELTA)["epsilon"]


@pytest.mark.parametrize(
    "changes",
    [
        {"unit": "client", "trust": "secure_aggregation", "released_by": "server"},  # the cohort is listed: no secret
        {"sampler": "poisson", "adjacency": "add_remove"},
    ],
)
def test_other_listed_releases_stay_without_amplification(changes):
    release = replace(DRAWN, **changes)
    ledger = privacy.PrivacyLedger()
    ledger.record(release, ids(0, 1))
    report = ledger.report(DELTA)
    assert report["epsilon"] == report["epsilon_without_amplification"] == privacy.gaussian_epsilon(2.0, 30, DELTA)
    text = f"amplification by {release.sampler} sampling at rate 0.02 not counted: recorded for listed clients"
    assert report["not_counted"] == [text]
    assert not any("afresh" in text for text in report["conditions"])


def test_all_records_and_no_clients_are_no_draw():
    for release, clients in ((replace(DRAWN, rate=1.0), ids(0)), (DRAWN, ids())):
        ledger = privacy.PrivacyLedger()
        ledger.record(release, clients)
        report = ledger.report(DELTA)
        assert report["epsilon"] == (privacy.gaussian_epsilon(2.0, 30, DELTA) if len(clients) else 0.0)
        assert report["not_counted"] == [] and not any("afresh" in text for text in report["conditions"])


def test_no_noise_is_no_epsilon():
    ledger = privacy.PrivacyLedger()
    ledger.record(replace(DRAWN, noise_multiplier=0.0), ids(0))
    assert ledger.report(DELTA)["epsilon"] is None and ledger.would_exceed(DRAWN, 1e9, DELTA, ids(1))


def test_many_rates_are_told_by_their_ends():
    ledger = privacy.PrivacyLedger()
    for client in range(5):
        ledger.record(replace(DRAWN, rate=0.01 * (client + 1), noise_multiplier=0.005), ids(client))
    assert any("fixed at 5 rates from 0.01 to 0.05, drawn" in text for text in ledger.report(DELTA)["conditions"])


def test_the_state_does_not_grow_with_the_rounds_and_makes_the_same_ledger_again():
    sizes = []
    for rounds in (4, 400):
        ledger = privacy.PrivacyLedger()
        for t in range(rounds):
            for release in (PLAIN, DRAWN):
                ledger.record(replace(release, round=t), ids(t % 4, 4 + t % 2))
        sizes.append([len(ledger.state()["kinds"]), len(ledger.state()["kinds"][1]["clients"])])
    assert sizes[0] == sizes[1] == [2, 6]
    again = reloaded(ledger)
    for this in (ledger, again):
        this.record(DRAWN, ids(9))
    assert again.state() == ledger.state() and again.report(DELTA) == ledger.report(DELTA)
    assert json.loads(json.dumps(ledger.state(), allow_nan=False)) == ledger.state()


def test_each_different_spending_is_evaluated_once(monkeypatch):
    """100 clients with 30 different counts of one local call: the busiest is worse than all, so one is looked at."""
    asked = []

    def counted(*given):
        asked.append(given)
        return total_epsilon(*given)

    monkeypatch.setattr(ledger_module, "total_epsilon", counted)
    ledger = privacy.PrivacyLedger()
    for client in range(100):
        for release in (PLAIN, DRAWN):
            ledger.record(replace(release, count=release.count * (1 + client % 30)), ids(client))
    assert not ledger.would_exceed(PLAIN, 1e3, DELTA, ids(5)) and len(asked) == 1
    ledger.record(replace(PLAIN, count=10_000), ids(0))  # now two clients may be the worst: much plain, much drawn
    asked.clear()
    ledger.would_exceed(PLAIN, 1e3, DELTA, ids(5))
    assert len(asked) == 2


@given(spent=st.lists(st.dictionaries(st.sampled_from([(), (0.1, 2.0), (0.2, 2.0)]), st.integers(0, 3)), max_size=12))
def test_what_is_left_out_is_below_something_kept(spent):
    kept = largest(spent)
    assert all(one in spent for one in kept)
    for one in spent:
        assert any(one.keys() == other.keys() and all(other[k] >= one[k] for k in one) for other in kept)
    for i, one in enumerate(kept):
        for other in kept[:i] + kept[i + 1 :]:
            assert one.keys() != other.keys() or any(one[k] > other[k] for k in one)


@settings(max_examples=25)
@given(
    moves=st.lists(
        st.tuples(
            st.sampled_from([("none", None), ("fixed", 0.02), ("fixed", 0.1)]),
            st.sampled_from([2.0, 5.0]),
            st.integers(1, 30),
            st.none() | st.sets(st.integers(0, 3)),
        ),
        min_size=1,
        max_size=7,
    )
)
def test_any_history_against_a_list_of_each_clients_releases(moves):
    ledger, last = privacy.PrivacyLedger(), 0.0
    cost = {client: ([], []) for client in range(5)}  # plain 1/z^2, and draws; client 4 is never listed
    for (sampler, rate), z, count, clients in moves:
        release = replace(DRAWN, sampler=sampler, rate=rate, noise_multiplier=z, count=count)
        which = None if clients is None else ids(*clients)
        exceeds = ledger.would_exceed(release, 1.0, DELTA, which)
        ledger.record(release, which)
        for client in cost if clients is None else clients:
            cost[client][sampler == "fixed"].extend([(rate, z)] * count)
        figures, plain = [], []
        for releases, drawn in cost.values():
            mu = math.sqrt(sum(1 / z**2 for _, z in releases))
            draws = tuple(Draws("fixed", *form, drawn.count(form)) for form in sorted(set(drawn)))
            figures.append(total_epsilon(draws, mu, DELTA).epsilon)
            plain.append(sum(1 / z**2 for _, z in releases + drawn))
        report = ledger.report(DELTA)
        json.dumps(report, allow_nan=False)
        assert report["epsilon"] == pytest.approx(max(figures), rel=1e-9)
        assert report["epsilon_without_amplification"] == pytest.approx(
            privacy.exact_epsilon(math.sqrt(max(plain)), DELTA), rel=1e-9, abs=1e-12
        )
        assert exceeds == (report["epsilon"] > 1.0)
        assert report["epsilon"] <= min(report["epsilon_rdp"], report["epsilon_without_amplification"]) * (1 + 1e-12)
        assert report["epsilon"] >= last * (1 - 1e-12)
        last = report["epsilon"]
    assert reloaded(ledger).report(DELTA) == report
