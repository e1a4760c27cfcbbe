"""The privacy ledger: one sound figure, whatever was recorded in whatever order, and the same after a checkpoint."""

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
from fedbook.papers.prirfed.local_call import call_epsilon, rsvrg_parts
from fedbook.privacy.accountant import Draws, total_epsilon
from fedbook.privacy.cohorts import largest

CENTRAL = privacy.Release("the sum of clipped updates", "client", "zero_out", 2.0, 0.5, "secure_aggregation")
LOCAL = privacy.Release("a correlation matrix", "record", "replace_one", 5.0, 0.01, "none", released_by="client")
DRAWN = replace(LOCAL, noise_multiplier=2.0, sampler="fixed", rate=0.02, count=30, released_by="local_solver")
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


def sampled(release=CENTRAL, **changes):
    """A release to a secret cohort: Poisson at 0.05, one client added or removed, unless said otherwise."""
    return replace(release, **{"adjacency": "add_remove", "sampler": "poisson", "rate": 0.05} | changes)


def ledger_of(*entries):
    """A ledger of releases, or of (release, clients)."""
    ledger = privacy.PrivacyLedger()
    for entry in entries:
        ledger.record(*entry) if isinstance(entry, tuple) else ledger.record(entry)
    return ledger


# --- any history, against plain lists


@given(
    moves=st.lists(
        st.tuples(st.floats(0.3, 50.0), st.integers(1, 5), st.none() | st.sets(st.integers(0, 6))),
        min_size=1,
        max_size=8,
    ),
    delta=st.floats(1e-12, 0.5),
)
def test_any_history_of_plain_releases(moves, delta):
    """Against a list of all releases, client by client: the client with the most counts; it never falls."""
    ledger, history, last = privacy.PrivacyLedger(), [], -1.0
    for z, count, clients in moves:
        ledger.record(replace(LOCAL, noise_multiplier=z, count=count), None if clients is None else ids(*clients))
        history += [(z, clients)] * count
        report = ledger.report(delta)
        json.dumps(report, allow_nan=False)
        spent = max(sum(1 / z**2 for z, who in history if who is None or k in who) for k in range(8))
        assert report["epsilon"] == pytest.approx(privacy.exact_epsilon(math.sqrt(spent), delta), rel=1e-9, abs=1e-12)
        renyi = privacy.gaussian_rdp_epsilon(math.sqrt(spent), delta)[0]
        assert report["epsilon_rdp"] == pytest.approx(renyi, rel=1e-9, abs=1e-12)
        assert last <= report["epsilon"] <= report["epsilon_rdp"]
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
def test_any_mixture_of_samplers(moves, unit):
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
        assert report["epsilon"] <= report["epsilon_without_amplification"] * (1 + 1e-12)
        assert report["epsilon"] <= report["at_smaller_delta"]["epsilon"]
        last = report["epsilon"]
    assert reloaded(ledger).report(1e-3) == report


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
def test_any_history_of_records_that_clients_draw_themselves(moves):
    """Against each client's own list: plain releases, and draws of records with their amplification."""
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
        assert report["epsilon"] == pytest.approx(max(figures), rel=1e-9)
        assert report["epsilon_without_amplification"] == pytest.approx(
            epsilon(math.sqrt(max(plain))), rel=1e-9, abs=1e-12
        )
        assert exceeds == (report["epsilon"] > 1.0) and report["epsilon"] >= last * (1 - 1e-12)
        last = report["epsilon"]
    assert reloaded(ledger).report(DELTA) == report


@given(st.lists(st.tuples(st.integers(-1, 12), st.sampled_from([0.8, 2.0])), max_size=30), st.randoms())
def test_the_order_in_which_releases_of_a_round_are_recorded_does_not_matter(moves, random):
    """Against a plain table of rounds: releases of one round count as one cohort's, whatever came between."""
    table, forms, found = {}, {}, {}
    for t, z in moves:
        table.setdefault(t, []).append(z)
    for multipliers in table.values():
        form = (round(sum(1 / z**2 for z in multipliers) ** -0.5, 9), len(multipliers) > 1)
        forms[form] = forms.get(form, 0) + 1
    random.shuffle(moves)
    ledger = reloaded(ledger_of(*(sampled(round=t, noise_multiplier=z) for t, z in moves)))
    for draw in ledger._cohorts.draws(False, {}):
        form = (round(draw.noise_multiplier, 9), draw.shared)
        found[form] = found.get(form, 0) + draw.number
    assert found == forms


@given(spent=st.lists(st.dictionaries(st.sampled_from([(), (0.1, 2.0), (0.2, 2.0)]), st.integers(0, 3)), max_size=12))
def test_what_is_left_out_is_below_something_kept(spent):
    kept = largest(spent)
    assert all(one in spent for one in kept)
    for one in spent:
        assert any(one.keys() == other.keys() and all(other[k] >= one[k] for k in one) for other in kept)


# --- secret cohorts


def test_secret_cohorts_are_accounted_with_amplification():
    ledger = ledger_of(*(sampled(round=t) for t in range(200)))
    report = ledger.report(1e-3)
    assert report["epsilon"] == privacy.sampled_epsilon(2.0, 0.05, 200, 1e-3) and report["accountant"] == "pld"
    assert report["epsilon_rdp"] == privacy.sampled_epsilon(2.0, 0.05, 200, 1e-3, accountant="rdp")
    assert report["epsilon_without_amplification"] == pytest.approx(privacy.gaussian_epsilon(2.0, 200, 1e-3))
    smaller = {"delta": 1e-5, "epsilon": privacy.sampled_epsilon(2.0, 0.05, 200, 1e-5)}
    assert report["at_smaller_delta"] == smaller and smaller["epsilon"] > report["epsilon"]
    entry = report["released"][0]
    assert (entry["count"], entry["first_round"], entry["last_round"]) == (200, 0, 199)
    assert len(json.dumps(ledger.state())) < 1000  # does not grow with the rounds
    for other in (
        ledger_of(sampled(count=200)),
        ledger_of(*(sampled(adjacency="zero_out") for _ in range(200))),
        ledger_of(sampled(count=200, sensitivity=7.0)),  # C is scale only
    ):
        assert other.report(1e-3)["epsilon"] == report["epsilon"]
    assert ledger_of(sampled(rate=1.0, count=5)).report(DELTA)["epsilon"] == epsilon(math.sqrt(5 / 4))


def test_cohorts_of_fixed_size_are_accounted_for_units_replaced():
    report = ledger_of(*(sampled(adjacency="replace_one", sampler="fixed", round=t) for t in range(200))).report(1e-3)
    expected = privacy.sampled_epsilon(2.0, 0.05, 200, 1e-3, "fixed")
    assert report["epsilon"] == report["epsilon_rdp"] == expected and report["accountant"] == "rdp"
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
    assert any(text.endswith(why) for text in report["not_counted"])


def test_records_drawn_in_secret_stay_secret_when_clients_are_known():
    """Who took part says nothing about which of its records a client drew."""
    secret = sampled(LOCAL, noise_multiplier=2.0, rate=0.01, count=300)
    report = ledger_of(secret, (replace(LOCAL, adjacency="add_remove"), ids(0, 1))).report(DELTA)
    assert report["epsilon"] == total_epsilon((Draws("poisson", 0.01, 2.0, 300),), 1 / 5, DELTA).epsilon
    assert report["epsilon"] < report["epsilon_without_amplification"]


def test_who_knows_the_cohort_knows_who_is_there_and_the_report_says_so():
    """One client added: the list of those drawn in world 1 cannot come about in world 0, whatever the noise."""

    def about(*entries):
        [condition] = [text for text in ledger_of(*entries).report(DELTA)["conditions"] if " know" in text]
        return condition

    for secret in (sampled(), sampled(LOCAL)):
        assert "nothing hides who is there at all" in about(secret) and "seed of the draws" in about(secret)
    replaced = about(DRAWN)
    assert "nothing hides" not in replaced and replaced.endswith("epsilon_without_amplification holds")
    assert "which is then not hidden" in about((sampled(), ids(0, 1)))
    assert about((replace(CENTRAL, adjacency="zero_out"), ids(0, 1))).endswith("it may be known")
    for trust, usual in (("secure_aggregation", False), ("distributed_noise", True)):  # the former's server is trusted
        fixed = sampled(adjacency="replace_one", sampler="fixed", trust=trust)
        assert ("a server that runs secure aggregation usually does" in about(fixed)) is usual


def test_releases_to_none_of_the_own_clients_are_not_listed():
    """Seeds side by side: another federation's release has no client here, and its noise says nothing of ours."""
    own = (replace(CENTRAL, adjacency="add_remove"), ids(0))
    other = (sampled(noise_multiplier=7.0, trust="trusted_server", round=1), ids())
    report, alone = ledger_of(own, other).report(DELTA), ledger_of(own).report(DELTA)
    same = ("released", "sigma", "epsilon", "sampler", "trust")
    assert {word: report[word] for word in same} == {word: alone[word] for word in same} and report["sigma"] == 2.0
    again = ledger_of((replace(CENTRAL, round=0), ids(0)), (replace(CENTRAL, round=1), ids()))  # the same, a round on
    assert again.report(DELTA)["released"][0]["last_round"] == 0


def test_releases_of_one_round_may_have_had_one_cohort():
    """The larger of both readings: one cohort for both releases, or one each."""
    pair = [r for t in range(200) for r in (sampled(round=t), sampled(round=t, noise_multiplier=3.0, what="a count"))]
    report = ledger_of(*pair).report(1e-3)
    together = privacy.sampled_epsilon((1 / 4 + 1 / 9) ** -0.5, 0.05, 200, 1e-3, accountant="rdp")
    apart = total_epsilon(tuple(Draws("poisson", 0.05, z, 200) for z in (2.0, 3.0)), 0.0, 1e-3)
    assert report["epsilon"] == pytest.approx(together, rel=1e-12) and report["epsilon"] >= apart.epsilon
    twice = ledger_of(*(sampled(round=t, count=2) for t in range(200))).report(1e-3)["epsilon"]
    assert twice == pytest.approx(privacy.sampled_epsilon(2**0.5, 0.05, 200, 1e-3, accountant="rdp"), rel=1e-12)
    passes = ledger_of(*(sampled(round=t) for _ in range(2) for t in range(200)))  # the rounds twice, one after another
    assert passes.report(1e-3)["epsilon"] == pytest.approx(twice, rel=1e-12) and len(json.dumps(passes.state())) < 1000
    rates = ledger_of(*(sampled(round=t, rate=rate) for t in range(50) for rate in (0.05, 0.1))).report(1e-3)
    both = privacy.sampled_epsilon(2.0 / 2**0.5, 0.1, 50, 1e-3, accountant="rdp")  # who is in one may be in both
    assert rates["epsilon"] == pytest.approx(both, rel=1e-12)
    loud = ledger_of(sampled(round=0, count=2, noise_multiplier=1e200))  # 1 / z^2 is 0 in floats
    assert reloaded(loud).report(1e-3)["epsilon"] == 0.0
    silent = ledger_of(sampled(round=0), sampled(round=0, noise_multiplier=0.0))
    assert silent.report(1e-3)["epsilon"] is None


def test_a_round_has_one_sampler():
    poisson = sampled(round=3, adjacency="zero_out")
    ledger = ledger_of(poisson)
    before, fixed = ledger.state(), replace(poisson, sampler="fixed")
    for call in (ledger.record, lambda release: ledger.would_exceed(release, 1.0, 1e-3)):
        with pytest.raises(
            ValueError, match="^release.sampler: got 'fixed'; allowed is poisson, as before in round 3$"
        ):
            call(fixed)
    assert ledger.state() == before
    for allowed in (replace(fixed, round=4), replace(fixed, round=None), replace(fixed, sampler="none", rate=None)):
        ledger.record(allowed)


# --- records that clients draw themselves


def test_both_parts_of_a_variance_reduced_call_add_up():
    names, parts = ("noise_multiplier", "sampler", "rate", "count"), rsvrg_parts(8.0, 100, 1.0, 1.0, 3, 10, 0.2)
    ledger = ledger_of(*((replace(DRAWN, **dict(zip(names, part, strict=True))), ids(4, 7)) for part in parts))
    report = ledger.report(DELTA)
    assert report["epsilon"] == pytest.approx(call_epsilon(parts, DELTA), rel=1e-12)
    mu = math.sqrt(30) * 0.02 / math.sqrt(0.2) / 8.0
    drawn = Draws("fixed", 0.01, math.sqrt(0.8) * 8.0 / 4, 30)
    assert report["epsilon"] == pytest.approx(total_epsilon((drawn,), mu, DELTA).epsilon, rel=1e-9)
    whole = math.hypot(mu, math.sqrt(30) * 4 / 8.0 / math.sqrt(0.8))
    assert report["epsilon_without_amplification"] == pytest.approx(epsilon(whole), rel=1e-9)


def test_emptied_records_take_half_the_multiplier():
    drawn, figure = (
        Draws("fixed", 0.02, 2.0, 30, emptied=True),
        ledger_of((replace(DRAWN, adjacency="zero_out"), ids(0))),
    )
    assert figure.report(DELTA)["epsilon"] == total_epsilon((drawn,), 0.0, DELTA).epsilon
    assert total_epsilon((replace(drawn, emptied=False),), 0.0, DELTA).epsilon < figure.report(DELTA)["epsilon"]


@pytest.mark.parametrize(
    "changes",
    [
        {"unit": "client", "trust": "secure_aggregation", "released_by": "server"},  # the cohort is listed: no secret
        {"sampler": "poisson", "adjacency": "add_remove"},
        {"rate": 1.0},
    ],
)
def test_other_listed_releases_stay_without_amplification(changes):
    report = ledger_of((replace(DRAWN, **changes), ids(0, 1))).report(DELTA)
    assert report["epsilon"] == report["epsilon_without_amplification"] == privacy.gaussian_epsilon(2.0, 30, DELTA)
    assert ledger_of((replace(DRAWN, **changes), ids())).report(DELTA)["epsilon"] == 0.0


# --- what is said


def test_nothing_that_leaves_costs_nothing():
    ledger = privacy.PrivacyLedger()
    ledger.nothing_leaves("each client trains its own head on a public random body")
    report = reloaded(ledger).report(1e-3)
    assert report["epsilon"] == report["epsilon_rdp"] == report["at_smaller_delta"]["epsilon"] == 0.0
    assert report["epsilon_of_releases"] is None and report["accountant"] is None
    json.dumps(report, allow_nan=False)
    assert not ledger.would_exceed(CENTRAL, 10.0, 1e-3)
    for spoil in (lambda ledger: ledger.in_clear("the heads"), lambda ledger: ledger.record(CENTRAL)):
        spoiled = reloaded(ledger)
        spoil(spoiled)
        assert spoiled.report(1e-3)["epsilon"] != 0.0


def test_not_private_is_said_and_never_a_number():
    clear, both = privacy.PrivacyLedger(), ledger_of(LOCAL)
    clear.in_clear("the labels, in the set-up")
    both.in_clear("the encoder itself")
    silent, tiny = (ledger_of(replace(CENTRAL, noise_multiplier=z)) for z in (0.0, 1e-300))
    for ledger in (
        privacy.PrivacyLedger(),
        silent,
        tiny,
        clear,
        both,
        ledger_of((replace(DRAWN, noise_multiplier=0.0), ids(0))),
    ):
        report = ledger.report(DELTA)
        assert report["epsilon"] is report["epsilon_rdp"] is report["epsilon_without_amplification"] is None
        assert report["at_smaller_delta"] is None and ledger.report(0.1)["at_smaller_delta"]["epsilon"] is None
        assert report["statement"].startswith("not private")
        json.dumps(report, allow_nan=False)
    assert silent.report(DELTA)["epsilon_of_releases"] is None
    assert both.report(DELTA)["epsilon_of_releases"] == pytest.approx(epsilon(0.2), rel=1e-12)
    both.assume_public("the clients' sizes")
    public = ledger_of(LOCAL)
    public.assume_public("the clients' sizes")  # which does not undo a figure
    assert public.report(DELTA)["epsilon"] is not None and public.report(DELTA)["assumed_public"] == [
        "the clients' sizes"
    ]


@given(st.floats(1e-2, 1e6), st.floats(1e-12, 0.5))
def test_the_statement_never_promises_more_than_the_figure(z, delta):
    report = ledger_of(replace(CENTRAL, noise_multiplier=z)).report(delta)
    said, loss = (float(x) for x in re.search(r"exp\((.*)\), but for (.*)$", report["statement"]).groups())
    assert report["epsilon"] <= said <= report["epsilon"] * 1.001 and loss == delta


def test_the_report_says_whether_the_noise_can_be_repeated():
    for seeded, word in ((True, "seed"), (False, "operating system")):
        ledger = privacy.PrivacyLedger(noise_seeded=seeded)
        ledger.record(CENTRAL)
        assert word in reloaded(ledger).report(DELTA)["noise"]


# --- refusals, budgets, checkpoints


def test_one_unit_and_one_adjacency_a_ledger():
    ledger = ledger_of(CENTRAL)
    for other in (LOCAL, replace(CENTRAL, adjacency="replace_one"), replace(CENTRAL, unit="record")):
        for call in (ledger.record, lambda r: ledger.would_exceed(r, 1.0, DELTA)):
            with pytest.raises(ValueError, match="^release: got the unit"):
                call(other)
    assert ledger.report(DELTA)["released"][0]["count"] == 1


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"adjacency": "add_remove", "sampler": "fixed", "rate": 0.1}, "adjacency"),
        ({"adjacency": "add_remove", "trust": "none", "released_by": "client"}, "adjacency"),
        ({"trust": "none"}, "released_by"),
        ({"trust": "distributed_noise", "sampler": "poisson", "rate": 0.1}, "trust"),
        *(({name: "nonsense"}, name) for name in ("unit", "adjacency", "mechanism", "trust", "released_by", "sampler")),
        *(({"noise_multiplier": z}, "noise_multiplier") for z in (-1.0, math.inf, math.nan)),
        ({"what": " "}, "what"),
        ({"sensitivity": 0.0}, "sensitivity"),
        *(({"sampler": "poisson", "rate": rate}, "rate") for rate in (None, 0.0, 1.5)),
        ({"rate": 0.5}, "rate"),
        ({"count": 0}, "count"),
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


def test_bad_records_reports_and_declarations_are_refused():
    ledger = privacy.PrivacyLedger()
    for clients in (ids(1, 1), ids(-1), ids(1).double(), ids(1)[None], [1]):
        with pytest.raises((TypeError, ValueError), match="^clients: got"):
            ledger.record(LOCAL, clients)
    with pytest.raises(TypeError, match="^release: got"):
        ledger.record("gaussian")
    for delta in (0.0, 1.0, math.nan, "small"):
        for call in (ledger.report, lambda d: ledger.would_exceed(CENTRAL, 1.0, d)):
            with pytest.raises((TypeError, ValueError), match="^delta: got"):
                call(delta)
    for declare in (ledger.in_clear, ledger.assume_public, ledger.nothing_leaves):
        for what in ("  ", None):
            with pytest.raises(TypeError, match="^what: got"):
                declare(what)
    assert ledger.state() == privacy.PrivacyLedger().state()


def test_the_budget_guard_stops_before_the_release_that_exceeds():
    ledger, rounds = privacy.PrivacyLedger(), 0
    while not ledger.would_exceed(CENTRAL, 8.0, DELTA):
        ledger.record(CENTRAL)
        rounds += 1
    assert rounds > 1 and ledger.report(DELTA)["epsilon"] <= 8.0
    assert ledger.report(DELTA)["released"][0]["count"] == rounds  # asking records nothing
    assert ledger_of(*[CENTRAL] * (rounds + 1)).report(DELTA)["epsilon"] > 8.0


def test_the_budget_guard_by_client_and_without_noise():
    ledger, limit = ledger_of((LOCAL, ids(0))), epsilon(1 / 5.0) * 1.01
    assert not ledger.would_exceed(LOCAL, limit, DELTA, ids(1))
    assert ledger.would_exceed(LOCAL, limit, DELTA, ids(0, 1)) and ledger.would_exceed(LOCAL, limit, DELTA)
    assert ledger.would_exceed(replace(LOCAL, noise_multiplier=0.0), 1e9, DELTA, ids(1))
    ledger.in_clear("the encoder")
    assert ledger.would_exceed(LOCAL, 1e9, DELTA, ids(1))


def test_a_checkpoint_makes_the_same_ledger_again():
    release = replace(
        LOCAL, noise_multiplier=np.float64(5.0), count=np.int64(1), round=np.int64(-1)
    )  # plain from here on
    ledger = privacy.PrivacyLedger(noise_seeded=False)
    ledger.record(release)
    for t, rate, clients in ((4, 0.5, ids(7, 3)), (5, 0.5, ids(3)), (5, 0.25, None), (6, 0.25, None)):
        ledger.record(replace(LOCAL, round=t, sampler="fixed", rate=rate), clients)
    ledger.in_clear("the encoder itself")
    ledger.assume_public("sizes")
    ledger.nothing_leaves("but it does")
    before, again = ledger.state(), reloaded(ledger)
    assert json.loads(json.dumps(before, allow_nan=False)) == before
    for this in (ledger, again):
        this.record(replace(LOCAL, round=6), ids(3))
        this.record(replace(LOCAL, round=6, sampler="fixed", rate=0.25))  # of the same round as before
    assert again.state() == ledger.state() != before and again.report(DELTA) == ledger.report(DELTA)
    assert reloaded(privacy.PrivacyLedger()).state() == privacy.PrivacyLedger().state()
