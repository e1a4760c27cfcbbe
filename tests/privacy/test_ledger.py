"""The privacy ledger: one sound figure, whatever was recorded, and the same after a checkpoint."""

import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbook import privacy
from fedbook.privacy.accountant import Draws, total_epsilon
from fedbook.privacy.release import TRUST

CENTRAL = privacy.Release("the sum of clipped updates", "client", "zero_out", 2.0, 0.5, "secure_aggregation")
LOCAL = privacy.Release("a correlation matrix", "record", "replace_one", 5.0, 0.01, "none", released_by="client")
DELTA = 1e-5


def ids(*clients):
    return torch.tensor(clients, dtype=torch.long)


def reloaded(ledger):
    """Through a file as checkpoints are: no code is unpickled."""
    file = io.BytesIO()
    torch.save(ledger.state(), file)
    file.seek(0)
    return privacy.PrivacyLedger.from_state(torch.load(file, weights_only=True))


def epsilon(mu):
    return privacy.exact_epsilon(mu, DELTA)


def test_equal_releases_are_counted_not_kept():
    ledger = privacy.PrivacyLedger()
    for t in range(500):
        ledger.record(replace(CENTRAL, round=t))
    report = ledger.report(DELTA)
    assert len(ledger.state()["kinds"]) == len(report["released"]) == 1
    entry = report["released"][0]
    assert (entry["count"], entry["first_round"], entry["last_round"]) == (500, 0, 499)
    assert report["epsilon"] == pytest.approx(privacy.gaussian_epsilon(2.0, 500, DELTA), rel=1e-12)
    mu = math.sqrt(500) / 2.0
    assert report["epsilon_rdp"] == pytest.approx(privacy.gaussian_rdp_epsilon(mu, DELTA)[0], rel=1e-12)
    assert report["epsilon"] == report["epsilon_without_amplification"] < report["epsilon_rdp"]
    assert report["accountant"] == "exact"
    once = privacy.PrivacyLedger()
    once.record(replace(CENTRAL, count=500))
    assert once.report(DELTA)["epsilon"] == report["epsilon"]


def test_different_multipliers_add_their_inverse_squares():
    ledger = privacy.PrivacyLedger()
    ledger.record(replace(CENTRAL, count=4))
    ledger.record(replace(CENTRAL, noise_multiplier=1.0))
    report = ledger.report(DELTA)
    assert report["epsilon"] == pytest.approx(epsilon(math.sqrt(4 / 4 + 1)), rel=1e-12)
    assert report["sigma"] is None and len(report["released"]) == 2
    orders = [1.5, 2, 3, 5, 8, 16]
    rdp = [privacy.gaussian_rdp(a, 2.0, 4) + privacy.gaussian_rdp(a, 1.0) for a in orders]
    assert report["epsilon_rdp"] <= privacy.rdp_to_epsilon(orders, rdp, DELTA)[0]


def test_the_report_takes_the_client_with_the_most():
    ledger = privacy.PrivacyLedger()
    for cohort in [(0, 1, 2), (1, 2), (2,), ()]:
        ledger.record(LOCAL, ids(*cohort))
    ledger.record(replace(LOCAL, noise_multiplier=1.0), ids(0))
    ledger.record(replace(LOCAL, noise_multiplier=2.5, what="the first one"))
    spent = [1 / 25 + 1, 2 / 25, 3 / 25]  # client 0 has the most, though client 2 released most often
    assert ledger.report(DELTA)["epsilon"] == pytest.approx(epsilon(math.sqrt(max(spent) + 1 / 2.5**2)), rel=1e-12)
    assert [entry["count"] for entry in ledger.report(DELTA)["released"]] == [3, 1, 1]
    assert any("who took part" in text for text in ledger.report(DELTA)["conditions"])


def test_an_empty_cohort_costs_nothing():
    ledger = privacy.PrivacyLedger()
    ledger.record(LOCAL, ids())
    report = ledger.report(DELTA)
    assert report["epsilon"] == report["epsilon_rdp"] == 0.0 and report["released"][0]["count"] == 0


def test_memory_is_one_number_a_client_that_released():
    ledger = privacy.PrivacyLedger()
    for client in range(50):  # every client has its own size and so its own sensitivity
        ledger.record(replace(LOCAL, sensitivity=1.0 / (client + 1), noise_multiplier=client + 1.0), ids(client))
    assert sum(len(kind["clients"]) for kind in ledger.state()["kinds"]) == 50
    assert ledger.report(DELTA)["epsilon"] == pytest.approx(epsilon(1.0), rel=1e-12)


def sampled(release=CENTRAL, **changes):
    """A release to a secret cohort: Poisson at 0.05, one client added or removed, unless said otherwise."""
    return replace(release, **{"adjacency": "add_remove", "sampler": "poisson", "rate": 0.05} | changes)


def ledger_of(*entries):
    """A ledger of releases, or of (release, clients)."""
    ledger = privacy.PrivacyLedger()
    for entry in entries:
        ledger.record(*entry) if isinstance(entry, tuple) else ledger.record(entry)
    return ledger


def test_secret_cohorts_are_accounted_with_amplification():
    ledger = ledger_of(*(sampled(round=t) for t in range(200)))
    report = ledger.report(1e-3)
    assert report["epsilon"] == privacy.sampled_epsilon(2.0, 0.05, 200, 1e-3) and report["accountant"] == "pld"
    assert report["epsilon_rdp"] == privacy.sampled_epsilon(2.0, 0.05, 200, 1e-3, accountant="rdp")
    assert report["epsilon_without_amplification"] == pytest.approx(privacy.gaussian_epsilon(2.0, 200, 1e-3))
    smaller = {"delta": 1e-5, "epsilon": privacy.sampled_epsilon(2.0, 0.05, 200, 1e-5)}
    assert report["at_smaller_delta"] == smaller and smaller["epsilon"] > report["epsilon"]
    assert report["not_counted"] == [] and len(report["released"]) == len(ledger.state()["kinds"]) == 1
    assert len(json.dumps(ledger.state())) < 1000
    conditions = " ".join(report["conditions"])
    assert "poisson at rate 0.05" in conditions and "secure aggregation usually does" in conditions
    assert "hidden" not in conditions
    for other in (ledger_of(sampled(count=200)), ledger_of(*(sampled(adjacency="zero_out") for _ in range(200)))):
        assert other.report(1e-3)["epsilon"] == report["epsilon"]
    assert (
        ledger_of(sampled(count=200, sensitivity=7.0)).report(1e-3)["epsilon"] == report["epsilon"]
    )  # C is scale only


def test_more_rounds_less_noise_and_higher_rates_cost_more():
    def cost(**changes):
        return ledger_of(sampled(**changes)).report(1e-3)["epsilon"]

    over_time = [cost(count=count) for count in (1, 2, 10, 100, 1000)]
    assert over_time == sorted(over_time) and over_time[0] < over_time[-1]
    assert cost(count=100, noise_multiplier=3.0) < cost(count=100) < cost(count=100, rate=0.06)
    assert cost(count=100, noise_multiplier=0.0) is None


def test_cohorts_of_fixed_size_are_accounted_for_units_replaced():
    report = ledger_of(*(sampled(adjacency="replace_one", sampler="fixed", round=t) for t in range(200))).report(1e-3)
    expected = privacy.sampled_epsilon(2.0, 0.05, 200, 1e-3, "fixed")
    assert report["epsilon"] == report["epsilon_rdp"] == expected and report["accountant"] == "rdp"
    assert any("nothing hidden that they carry from round to round" in text for text in report["conditions"])
    emptied = ledger_of(sampled(adjacency="zero_out", sampler="fixed", count=200)).report(1e-3)["epsilon"]
    assert emptied == pytest.approx(privacy.sampled_epsilon(1.0, 0.05, 200, 1e-3, "fixed"), rel=0.05)
    assert expected < emptied <= privacy.sampled_epsilon(1.0, 0.05, 200, 1e-3, "fixed")


@pytest.mark.parametrize(
    ("releases", "why"),
    [
        ([(sampled(unit="record"), ids(0, 1))], "recorded for listed clients"),
        ([sampled(adjacency="replace_one")], "no bound for replace_one neighbours"),
        ([sampled(adjacency="zero_out", trust="none", released_by="client")], "each upload is seen"),
        ([sampled(), (sampled(sampler="none", rate=None), ids(2))], "other releases show who took part"),
        (
            [sampled(adjacency="zero_out"), replace(CENTRAL, trust="none", released_by="client")],
            "other releases show who took part",
        ),
    ],
)
def test_where_amplification_is_not_proved_it_is_not_counted(releases, why):
    report = ledger_of(*releases).report(DELTA)
    assert report["epsilon"] == pytest.approx(epsilon(math.sqrt(len(releases)) / 2.0), rel=1e-12)
    assert f"amplification by poisson sampling at rate 0.05 not counted: {why}" in report["not_counted"]
    assert report["accountant"] == "exact" and not any("afresh" in text for text in report["conditions"])


def test_records_drawn_in_secret_stay_secret_when_clients_are_known():
    """Who took part says nothing about which of its records a client drew."""
    secret = sampled(LOCAL, noise_multiplier=2.0, rate=0.01)
    report = ledger_of(replace(secret, count=300), (replace(LOCAL, adjacency="add_remove"), ids(0, 1))).report(DELTA)
    both = total_epsilon((Draws("poisson", 0.01, 2.0, 300),), 1 / 5, DELTA)
    assert report["epsilon"] == both.epsilon and both.accountant == "pld"
    assert report["epsilon"] < report["epsilon_without_amplification"]


def test_everybody_drawn_is_the_plain_gaussian():
    assert ledger_of(sampled(rate=1.0, count=5)).report(DELTA)["epsilon"] == epsilon(math.sqrt(5 / 4))
    assert ledger_of(sampled(rate=1.0)).report(DELTA)["not_counted"] == []


def test_releases_of_one_round_may_have_had_one_cohort():
    """The larger of both readings: one cohort for both releases, or one each."""
    pair = [r for t in range(200) for r in (sampled(round=t), sampled(round=t, noise_multiplier=3.0, what="a count"))]
    report = ledger_of(*pair).report(1e-3)
    together = privacy.sampled_epsilon((1 / 4 + 1 / 9) ** -0.5, 0.05, 200, 1e-3, accountant="rdp")
    draws = tuple(Draws("poisson", 0.05, z, 200) for z in (2.0, 3.0))
    apart = total_epsilon(draws, 0.0, 1e-3)
    assert report["epsilon"] == pytest.approx(together, rel=1e-12) and report["accountant"] == "rdp"
    assert report["epsilon"] >= apart.epsilon
    twice = ledger_of(*(sampled(round=t, count=2) for t in range(200))).report(1e-3)["epsilon"]
    again = ledger_of(*(sampled(round=t) for t in range(200) for _ in range(2))).report(1e-3)["epsilon"]
    assert twice == pytest.approx(again, rel=1e-12)
    assert twice == pytest.approx(privacy.sampled_epsilon(2**0.5, 0.05, 200, 1e-3, accountant="rdp"), rel=1e-12)
    rates = ledger_of(*(sampled(round=t, rate=rate) for t in range(50) for rate in (0.05, 0.1))).report(1e-3)
    assert rates["accountant"] == "pld"  # different rates are different draws
    loud = ledger_of(sampled(round=0, count=2, noise_multiplier=1e200))  # 1 / z^2 is 0 in floats
    assert reloaded(loud).report(1e-3)["epsilon"] == 0.0
    silent = ledger_of(sampled(round=0), sampled(round=0, noise_multiplier=0.0))
    assert silent.report(1e-3)["epsilon"] is None


@given(st.lists(st.tuples(st.integers(-1, 12), st.sampled_from([0.8, 2.0])), max_size=30), st.randoms())
def test_the_order_in_which_releases_of_a_round_are_recorded_does_not_matter(moves, random):
    """Against a plain table of rounds: releases of one round count as one cohort's, whatever came between."""
    table = {}
    for t, z in moves:
        table.setdefault(t, []).append(z)
    forms = {}
    for multipliers in table.values():
        z = sum(1 / z**2 for z in multipliers) ** -0.5
        form = (round(z, 9), len(multipliers) > 1)
        forms[form] = forms.get(form, 0) + 1
    random.shuffle(moves)
    ledger = reloaded(ledger_of(*(sampled(round=t, noise_multiplier=z) for t, z in moves)))
    drawn = ledger._cohorts.draws(False, {})
    found = {}
    for draw in drawn:
        form = (round(draw.noise_multiplier, 9), draw.shared)
        found[form] = found.get(form, 0) + draw.number
    assert found == forms


def test_two_passes_over_the_rounds_cost_what_two_releases_a_round_cost():
    loud = {"noise_multiplier": 0.8, "rate": 0.02}
    passes = ledger_of(*(sampled(round=t, **loud) for _ in range(2) for t in range(100)))
    pairs = ledger_of(*(sampled(round=t, **loud) for t in range(100) for _ in range(2)))
    once = ledger_of(*(sampled(round=t, **loud) for t in range(100)))
    assert passes.report(1e-5)["epsilon"] == pairs.report(1e-5)["epsilon"] > 3 * once.report(1e-5)["epsilon"]
    assert len(json.dumps(passes.state())) < 1000


def test_nothing_that_leaves_costs_nothing():
    ledger = privacy.PrivacyLedger()
    ledger.nothing_leaves("each client trains its own head on a public random body")
    report = reloaded(ledger).report(1e-3)
    assert report["epsilon"] == report["epsilon_rdp"] == report["at_smaller_delta"]["epsilon"] == 0.0
    assert report["statement"].startswith("nothing that depends on the protected data leaves its client: each client")
    assert report["nothing_leaves"] and report["epsilon_of_releases"] is None and report["accountant"] is None
    json.dumps(report, allow_nan=False)
    assert not ledger.would_exceed(CENTRAL, 10.0, 1e-3)
    for spoil in (lambda ledger: ledger.in_clear("the heads"), lambda ledger: ledger.record(CENTRAL)):
        spoiled = reloaded(ledger)
        spoil(spoiled)
        assert spoiled.report(1e-3)["epsilon"] != 0.0


def test_the_guard_asks_for_the_slow_figure_only_when_it_must(monkeypatch):
    from fedbook.privacy import ledger as module

    asked = []

    def counted(draws, mu, delta, account):
        asked.append(account)
        return total_epsilon(draws, mu, delta, account)

    monkeypatch.setattr(module, "total_epsilon", counted)
    ledger = ledger_of(sampled(count=100))
    renyi = privacy.sampled_epsilon(2.0, 0.05, 101, 1e-3, accountant="rdp")
    shown = privacy.sampled_epsilon(2.0, 0.05, 101, 1e-3)
    assert not ledger.would_exceed(sampled(round=100), renyi, 1e-3) and asked == ["rdp"]
    assert not ledger.would_exceed(sampled(round=100), shown, 1e-3) and asked == ["rdp", "rdp", "pld"]
    assert ledger.would_exceed(sampled(round=100), shown * (1 - 1e-9), 1e-3)


def test_not_private_is_said_and_never_a_number():
    nothing = privacy.PrivacyLedger()
    silent = privacy.PrivacyLedger()
    silent.record(replace(CENTRAL, noise_multiplier=0.0))
    tiny = privacy.PrivacyLedger()
    tiny.record(replace(CENTRAL, noise_multiplier=1e-300))
    clear = privacy.PrivacyLedger()
    clear.in_clear("the labels, in the set-up")
    both = privacy.PrivacyLedger()
    both.record(LOCAL)
    both.in_clear("the encoder itself")
    both.in_clear("the encoder itself")
    for ledger in (nothing, silent, tiny, clear, both):
        report = ledger.report(DELTA)
        assert report["epsilon"] is report["epsilon_rdp"] is report["epsilon_without_amplification"] is None
        assert report["at_smaller_delta"] is None and ledger.report(0.1)["at_smaller_delta"]["epsilon"] is None
        assert report["statement"].startswith("not private: ")
        json.dumps(report, allow_nan=False)
    assert nothing.report(DELTA)["accountant"] is None and nothing.report(DELTA)["epsilon_of_releases"] is None
    assert silent.report(DELTA)["epsilon_of_releases"] is None
    assert both.report(DELTA)["in_clear"] == ["the encoder itself"]
    assert "the encoder itself" in both.report(DELTA)["statement"]
    assert both.report(DELTA)["epsilon_of_releases"] == pytest.approx(epsilon(0.2), rel=1e-12)


@given(st.floats(1e-2, 1e6), st.floats(1e-12, 0.5))
def test_the_statement_never_promises_less_than_the_figure(z, delta):
    report = ledger_of(replace(CENTRAL, noise_multiplier=z)).report(delta)
    epsilon, loss = (float(x) for x in re.search(r"exp\((.*)\), but for (.*)$", report["statement"]).groups())
    assert report["epsilon"] <= epsilon <= report["epsilon"] * 1.001 and loss == delta


def test_what_is_assumed_public_does_not_undo_the_figure():
    ledger = privacy.PrivacyLedger()
    ledger.record(LOCAL)
    ledger.assume_public("the clients' sizes")
    assert ledger.report(DELTA)["epsilon"] is not None
    assert ledger.report(DELTA)["assumed_public"] == ["the clients' sizes"]


def test_the_report_says_where_the_noise_comes_from_and_whom_to_trust():
    seeded, unseeded = privacy.PrivacyLedger(), privacy.PrivacyLedger(noise_seeded=False)
    for ledger in (seeded, unseeded):
        ledger.record(CENTRAL)
        ledger.record(replace(CENTRAL, trust="trusted_server"))
    assert "not private from whoever knows the seed" in seeded.report(DELTA)["noise"]
    assert "operating system" in unseeded.report(DELTA)["noise"]
    assert seeded.report(DELTA)["trust"] == [TRUST["secure_aggregation"], TRUST["trusted_server"]]
    assert "one client emptied" in seeded.report(DELTA)["statement"]
    for key in ("unit", "adjacency", "sampler", "sigma", "delta"):
        assert seeded.report(DELTA)[key] is not None


def test_one_unit_and_one_adjacency_a_ledger():
    ledger = privacy.PrivacyLedger()
    ledger.record(CENTRAL)
    for other in (LOCAL, replace(CENTRAL, adjacency="replace_one"), replace(CENTRAL, unit="record")):
        for call in (ledger.record, lambda r: ledger.would_exceed(r, 1.0, DELTA)):
            with pytest.raises(ValueError, match="^release: got the unit .* allowed is what this ledger holds"):
                call(other)
    assert ledger.report(DELTA)["released"][0]["count"] == 1


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"adjacency": "add_remove", "sampler": "fixed", "rate": 0.1}, "adjacency"),
        ({"adjacency": "add_remove", "trust": "none", "released_by": "client"}, "adjacency"),
        ({"trust": "none"}, "released_by"),
        ({"trust": "distributed_noise", "sampler": "poisson", "rate": 0.1}, "trust"),
        ({"what": " "}, "what"),
        ({"what": 3}, "what"),
        ({"unit": "user"}, "unit"),
        ({"adjacency": "swap"}, "adjacency"),
        ({"mechanism": "laplace"}, "mechanism"),
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"noise_multiplier": math.inf}, "noise_multiplier"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
        ({"sensitivity": 0.0}, "sensitivity"),
        ({"trust": "everyone"}, "trust"),
        ({"released_by": "nobody"}, "released_by"),
        ({"sampler": "shuffle"}, "sampler"),
        ({"sampler": "poisson"}, "rate"),
        ({"sampler": "poisson", "rate": 0.0}, "rate"),
        ({"sampler": "poisson", "rate": 1.5}, "rate"),
        ({"rate": 0.5}, "rate"),
        ({"count": 0}, "count"),
        ({"count": 1.0}, "count"),
        ({"round": -2}, "round"),
    ],
)
def test_a_release_refuses_what_it_cannot_promise(changes, name):
    with pytest.raises((TypeError, ValueError), match=f"^{name}: got"):
        replace(CENTRAL, **changes)


def test_the_sound_neighbours_of_refused_combinations_pass():
    replace(CENTRAL, adjacency="add_remove", sampler="poisson", rate=0.1)
    replace(CENTRAL, sampler="fixed", rate=0.1)
    replace(CENTRAL, trust="none", released_by="client")
    replace(LOCAL, adjacency="add_remove")
    replace(CENTRAL, trust="distributed_noise", released_by="client", sampler="fixed", rate=0.1)


def test_a_client_is_counted_once_a_release():
    ledger = privacy.PrivacyLedger()
    for clients in (ids(1, 1), ids(-1), ids(1).double(), ids(1)[None], [1], ids(1) > 0):
        with pytest.raises((TypeError, ValueError), match="^clients: got"):
            ledger.record(LOCAL, clients)
    with pytest.raises(TypeError, match="^release: got"):
        ledger.record("gaussian")
    assert ledger.state()["kinds"] == []


def test_the_budget_guard_stops_before_the_release_that_exceeds():
    ledger, rounds = privacy.PrivacyLedger(), 0
    while not ledger.would_exceed(CENTRAL, 8.0, DELTA):
        ledger.record(CENTRAL)
        rounds += 1
    assert rounds > 1 and ledger.report(DELTA)["epsilon"] <= 8.0
    assert ledger.report(DELTA)["released"][0]["count"] == rounds  # asking records nothing
    ledger.record(CENTRAL)
    assert ledger.report(DELTA)["epsilon"] > 8.0


def test_the_budget_guard_by_client_and_without_noise():
    ledger = privacy.PrivacyLedger()
    limit = epsilon(1 / 5.0) * 1.01
    ledger.record(LOCAL, ids(0))
    assert not ledger.would_exceed(LOCAL, limit, DELTA, ids(1))
    assert ledger.would_exceed(LOCAL, limit, DELTA, ids(0, 1))
    assert ledger.would_exceed(LOCAL, limit, DELTA)
    assert ledger.would_exceed(replace(LOCAL, noise_multiplier=0.0), 1e9, DELTA, ids(1))
    ledger.in_clear("the encoder")
    assert ledger.would_exceed(LOCAL, 1e9, DELTA, ids(1))


def test_state_makes_the_same_ledger_again():
    ledger = privacy.PrivacyLedger(noise_seeded=False)
    ledger.record(replace(LOCAL, round=-1))
    ledger.record(replace(LOCAL, round=4, sampler="fixed", rate=0.5), ids(7, 3))
    ledger.record(replace(LOCAL, round=5, sampler="fixed", rate=0.5), ids(3))
    ledger.record(replace(LOCAL, round=5, sampler="fixed", rate=0.25))
    ledger.record(replace(LOCAL, round=6, sampler="fixed", rate=0.25))
    ledger.in_clear("the encoder itself")
    ledger.assume_public("sizes")
    ledger.nothing_leaves("but it does")
    again = reloaded(ledger)
    for this in (ledger, again):
        this.record(replace(LOCAL, round=6), ids(3))
        this.record(replace(LOCAL, round=6, sampler="fixed", rate=0.25))  # of the same round as before
    assert again.state() == ledger.state()
    assert again.report(DELTA) == ledger.report(DELTA)
    assert json.loads(json.dumps(ledger.state(), allow_nan=False)) == ledger.state()
    assert reloaded(privacy.PrivacyLedger()).state() == privacy.PrivacyLedger().state()


def test_the_state_is_a_copy():
    ledger = privacy.PrivacyLedger()
    ledger.record(LOCAL, ids(1))
    before = ledger.state()
    ledger.record(LOCAL, ids(1))
    again = privacy.PrivacyLedger.from_state(before)
    again.record(LOCAL, ids(2))
    assert before["kinds"][0]["counts"] == [1]
    assert ledger.state()["kinds"][0]["counts"] == [2]


def test_numpy_numbers_become_plain_ones():
    release = replace(CENTRAL, noise_multiplier=np.float64(2.0), count=np.int64(3), round=np.int64(1))
    assert release == replace(CENTRAL, count=3, round=1)
    ledger = privacy.PrivacyLedger()
    ledger.record(release)
    assert reloaded(ledger).state() == ledger.state()


@given(
    moves=st.lists(
        st.tuples(st.floats(0.3, 50.0), st.integers(1, 5), st.none() | st.sets(st.integers(0, 6))),
        min_size=1,
        max_size=8,
    ),
    delta=st.floats(1e-12, 0.5),
)
def test_any_history_gives_a_sound_json_report(moves, delta):
    """Against a plain list of all releases, client by client; and it never falls as releases come in."""
    ledger, history, last = privacy.PrivacyLedger(), [], -1.0
    for z, count, clients in moves:
        ledger.record(replace(LOCAL, noise_multiplier=z, count=count), None if clients is None else ids(*clients))
        history += [(z, clients)] * count
        report = ledger.report(delta)
        json.dumps(report, allow_nan=False)
        spent = [sum(1 / z**2 for z, who in history if who is None or k in who) for k in range(8)]
        assert report["epsilon"] == pytest.approx(
            privacy.exact_epsilon(math.sqrt(max(spent)), delta), rel=1e-9, abs=1e-12
        )
        assert report["epsilon"] <= report["epsilon_rdp"]
        assert report["epsilon"] >= last
        last = report["epsilon"]


@settings(max_examples=25)
@given(
    moves=st.lists(
        st.tuples(
            st.sampled_from([("none", None), ("poisson", 0.05), ("poisson", 0.4)]),
            st.sampled_from([1.0, 2.5]),
            st.integers(1, 30),
            st.none() | st.integers(0, 2),
            st.sampled_from([None, None, None, (), (3,)]),
        ),
        min_size=1,
        max_size=6,
    ),
    unit=st.sampled_from(["client", "record"]),
)
def test_any_mixture_of_samplers_gives_a_sound_report(moves, unit):
    """It never falls (but for the grid's rounding), stays below the plain figure, and survives a checkpoint."""
    ledger, last = privacy.PrivacyLedger(), 0.0
    for (sampler, rate), z, count, t, clients in moves:
        release = replace(CENTRAL, unit=unit, sampler=sampler, rate=rate, noise_multiplier=z, count=count, round=t)
        exceeds = ledger.would_exceed(release, 3.0, 1e-3, None if clients is None else ids(*clients))
        ledger.record(release, None if clients is None else ids(*clients))
        report = ledger.report(1e-3)
        json.dumps(report, allow_nan=False)
        assert exceeds == (report["epsilon"] > 3.0)
        assert last * (1 - 1e-3) <= report["epsilon"] <= report["epsilon_rdp"] * (1 + 1e-12)
        assert report["epsilon"] <= report["epsilon_without_amplification"]
        assert report["epsilon"] <= report["at_smaller_delta"]["epsilon"]
        last = report["epsilon"]
    assert reloaded(ledger).report(1e-3) == report


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, "small"])
def test_delta_is_checked(delta):
    with pytest.raises((TypeError, ValueError), match="^delta: got"):
        privacy.PrivacyLedger().report(delta)
    with pytest.raises((TypeError, ValueError), match="^delta: got"):
        privacy.PrivacyLedger().would_exceed(CENTRAL, 1.0, delta)


@pytest.mark.parametrize("name", ["in_clear", "assume_public", "nothing_leaves"])
def test_declarations_need_words(name):
    call = getattr(privacy.PrivacyLedger(), name)
    for what in ("", "  ", None, 3):
        with pytest.raises(TypeError, match="^what: got"):
            call(what)
