"""Chapter 2's stored comparisons: numbers of hand-made cells by hand, and figures that say them."""

import copy
import math

import pytest
from matplotlib.figure import Figure

from fedbook.experiment import compare
from fedbook.lab import chapter02_pairs as pairs
from fedbook.lab import chapter02_stored as stored
from fedbook.papers.hetero_ssfl import METHODS, PAPER

SHIFTS = {"knn": 0.05, "probe": 0.1, "own_classes": 0.2, "random_probe_few": -0.1}
SETTINGS = PAPER.defaults() | dict(PAPER.profiles["quick"]) | {"rounds": 10, "lr": 0.3}


def cell(method, few, *, up=6000, sent=(100, 300), architectures=None, tuned=None, tried=(), **varied):
    """A cell: probe_few by seed and evaluation [S][E]; other metrics at distances from it, losses 2 - it."""
    names = architectures or {"cnn_s": -0.02, "mlp": 0.02}
    runs = []
    for i, row in enumerate(few):
        last = row[-1]
        metrics = {"probe_few": last}
        if last is not None:
            metrics |= {name: last + shift for name, shift in SHIFTS.items()}
            metrics |= {"alignment": last / 2, "alignment_test": last / 4, "self_loss": 2 - last, "rank": 10 * last}
            metrics |= {"probe_few_by_architecture": {word: last + shift for word, shift in names.items()}}
        runs.append({"seed": i, "metrics": metrics, "rounds": 10, "bytes_up": up, "bytes_down": 2 * up})
    curve = {"round": [5, 10][-len(few[0]) :], "probe_few": few, "bytes": [list(sent)[-len(few[0]) :]] * len(few)}
    curve["alignment"] = [[None if v is None else v / 2 for v in row] for row in few]
    return {"method": method, "varied": varied, "tuned": tuned or {}, "tried": list(tried), "curve": curve,
            "runs": runs}  # fmt: skip


def table(*cells, problem="digits", **settings):
    return {"problem": problem, "profile": "quick", "metric": "probe_few", "seeds": 3, "cells": list(cells),
            "settings": SETTINGS | settings}  # fmt: skip


OWN = cell("hetero-ssfl", [[0.5, 0.7], [0.6, 0.8], [0.7, 0.9]])
LOCAL = cell("local-ssl", [[0.4, 0.6], [0.5, 0.75], [0.6, 0.75]], up=0, sent=(0, 0))
BYOL = cell("fedbyol", [[0.5, 0.8], [0.5, 0.8], [0.5, 0.8]], up=60_000, sent=(50_000, 100_000))
PIXELS = cell("raw-pixels", [[0.9], [0.9], [0.9]], up=0, sent=(0,))
MADE = table(PIXELS, BYOL, LOCAL, OWN)


def labels(axis):
    return [t.get_text() for t in axis.get_ticklabels()]


# --- methods


def test_methods_and_their_untrained_encoders():
    axes = Figure().subplots(1, 2)
    sentence = stored.draw_methods(axes, MADE, metrics=("probe_few", "knn"))
    assert sentence.startswith("Mean over 3 seeds, probe_few: Hetero-SSFL 80.0 (untrained 70.0), local SSL 70.0 (untr")
    assert "knn: Hetero-SSFL 85.0, local SSL 75.0, FedBYOL 85.0, raw pixels 95.0." in sentence
    assert labels(axes[0].yaxis) == ["Hetero-SSFL", "local SSL", "FedBYOL"] and set(labels(axes[1].yaxis)) == {""}
    found = {(float(x), float(y)) for line in axes[0].lines for x, y in zip(*line.get_data(), strict=True)}
    for point in ((80, 0), (70, 1), (80, 2)):
        assert any(math.dist(point, other) < 1e-9 for other in found)
    first = axes[0].collections[0].get_segments()[0][:, 0]  # 4.3027 deviations of 10 points over sqrt 3
    assert first == pytest.approx([80 - 24.84, 80 + 24.84], abs=0.01)
    levels = [line.get_xdata() for line in axes[0].lines if line.get_label() == "raw pixels"]
    assert levels == [pytest.approx([90, 90])]
    words = [t.get_text() for t in axes[0].get_legend().get_texts()]
    assert words == ["its encoders untrained", "raw pixels"]


def test_alignment_curves_leave_out_who_has_one_model():
    axes = Figure().subplots(1, 2)
    sentence = stored.draw_rounds(axes, MADE, metrics=("probe_few", "alignment"))
    assert "probe_few: Hetero-SSFL 80.0, local SSL 70.0, FedBYOL 80.0, raw pixels 90.0" in sentence
    assert sentence.endswith("alignment: Hetero-SSFL 0.400, local SSL 0.350.")
    assert [len(ax.lines) for ax in axes] == [4, 2]
    words = [t.get_text() for t in axes[1].get_legend().get_texts()]
    assert words == ["Hetero-SSFL", "local SSL", "FedBYOL", "raw pixels"]  # of both panels


def test_methods_look_apart():
    looks = [stored.look_of(m) for m in METHODS]
    for keys in (("marker",), ("color",), ("linestyle",)):
        assert len({tuple(str(look[k]) for k in keys) for look in looks}) >= 4
    assert len({(look["color"], look["marker"]) for look in looks}) == len({look["marker"] for look in looks}) == 12
    assert set(stored.NAMED) == set(METHODS) and set(stored.ALONE) | set(stored.PERSONAL) < set(METHODS)


# --- bytes


def test_bytes_by_hand(ax):
    """Ten rounds of five clients, and one upload of each before: 55 messages; what curves lack is the set-up."""
    assert stored.bytes_up(MADE, OWN) == 6000 / 55 and stored.bytes_up(MADE, BYOL) == 60_000 / 50
    some = cell("hetero-ssfl", [[0.5]], cohort=2)
    assert stored.bytes_up(table(some), some) == 6000 / 25
    t, sent = stored.bytes_so_far(OWN)
    assert t.tolist() == [5, 10] and sent.tolist() == [18_000 - 200, 18_000]
    sentence = stored.draw_sent(ax, MADE)
    assert "Hetero-SSFL 80.0 for 0.018 MB, local SSL 70.0 for nothing, FedBYOL 80.0 for 0.18 MB" in sentence
    assert ax.get_xscale() == "log" and ax.lines[0].get_xdata() == pytest.approx([0.0178, 0.018])
    once = cell("alignment-pass-only", [[0.4, 0.6]], up=0, sent=(0, 0))
    once["runs"][0]["bytes_down"] = 2e6
    assert "alignment pass only 60.0 for 2 MB, once" in stored.draw_sent(Figure().subplots(), table(OWN, once))
    with pytest.raises(ValueError, match="^metric"):
        stored.bytes_so_far({**OWN, "curve": {"round": [1]}})


# --- one setting


def by_mu(mu, value):
    return cell("hetero-ssfl", [[value - 0.1], [value], [value + 0.1]], mu=mu)


def test_values_of_a_setting_rise():
    made = table(by_mu(8.0, 0.4), by_mu(0.0, 0.6), by_mu(0.5, 0.7))
    assert list(stored.by_setting("mu", made)["hetero-ssfl"]) == [0.0, 0.5, 8.0]
    axes = Figure().subplots(1, 3)
    sentence = stored.draw_mu(axes, made)
    assert "probe_few: Hetero-SSFL 60.0 at 0, 70.0 at 0.5, 40.0 at 8; untrained, own 50.0, 60.0, 30.0." in sentence
    assert "self_loss: Hetero-SSFL 1.400 at 0, 1.300 at 0.5, 1.600 at 8" in sentence
    assert labels(axes[0].xaxis) == ["0", "0.5", "8"]
    assert axes[2].lines[0].get_ydata() == pytest.approx([0.15, 0.175, 0.1])
    with pytest.raises(ValueError, match=r"^fixed.*layer"):
        stored.by_setting("mu", table(by_mu(0.5, 0.1), {**by_mu(0.5, 0.2), "varied": {"mu": 0.5, "layer": "encoder"}}))


def test_epochs_are_one_line_a_method(ax):
    cells = [cell(m, [[v], [v]], local_epochs=e, rounds=45 // e)
             for m in ("fedbyol", "hetero-ssfl") for e, v in ((9, 0.8), (1, 0.7), (3, 0.75))]  # fmt: skip
    sentence = stored.draw_epochs(ax, table(*cells))
    assert "Hetero-SSFL 70.0 at 1, 75.0 at 3, 80.0 at 9; FedBYOL 70.0 at 1" in sentence
    named = [t.get_text() for t in ax.get_legend().get_texts()]
    assert sorted(named) == sorted(["untrained, own", "untrained, shared", "Hetero-SSFL", "FedBYOL"])
    assert "untrained, own 60.0, 65.0, 70.0; untrained, shared 60.0, 65.0, 70.0" in sentence


def test_alignment_sets_size_and_source():
    def one(method, samples, source, value):
        return cell(method, [[value], [value]], alignment_samples=samples, alignment_source=source)

    made = table(
        one("hetero-ssfl", 300, "holdout", 0.8), one("hetero-ssfl", 30, "holdout", 0.7),
        one("hetero-ssfl", 300, "noise", 0.6), one("local-ssl-plus-rad", 300, "noise", 0.5),
        one("local-ssl-plus-rad", 300, "holdout", 0.9),
    )  # fmt: skip
    axes = Figure().subplots(1, 2)
    sentence = stored.draw_alignment_set(axes, made)
    assert "probe_few: Hetero-SSFL 70.0 at 30, 80.0 at 300; local SSL + alignment set 90.0 at 300" in sentence
    assert "Hetero-SSFL 80.0 at holdout, 60.0 at noise; local SSL + alignment set 50.0 at noise" in sentence
    assert labels(axes[0].xaxis) == ["30", "300"] and labels(axes[1].xaxis) == ["holdout", "noise"]
    assert axes[0].get_legend() is None and axes[1].get_legend() is not None


# --- variants


def test_variants_are_paired_by_seed():
    printed = cell("hetero-ssfl", [[0.6], [0.65]], proximal="paper", lr=0.3)  # two of the default's three seeds
    usual = cell("hetero-ssfl", [[0.0]] * 3, mu=0.5)  # the default's value is no change
    control = cell("alignment-pass-only", [[0.7], [0.8], [0.9]])
    found = pairs.variants(table(printed, control), MADE)
    assert list(found) == ["+ CKA, the printed sign", "alignment pass only", "local SSL"]
    assert found["+ CKA, the printed sign"].mean == pytest.approx(-12.5)  # points: -10 and -15
    assert found["+ CKA, the printed sign"].count == 2 and found["alignment pass only"].mean == pytest.approx(0)
    later = cell("hetero-ssfl", [[0.0], [0.0], [0.0]])
    assert pairs.variants(table(printed, control, OWN), table(later))["alignment pass only"].mean == pytest.approx(0)
    with pytest.raises(ValueError, match="^table.*variant"):
        pairs.variants(table(usual))
    with pytest.raises(ValueError, match="^table.*defaults"):
        pairs.variants(table(printed))
    lost = cell("hetero-ssfl", [[None], [0.65], [0.6]], layer="encoder")
    assert "of the features" not in pairs.variants(table(lost, OWN, control))
    axes = Figure().subplots(1, 2)
    sentence = pairs.draw_variants(axes, table(printed, control), MADE)
    assert "2 to 3 seeds, probe_few: + CKA, the printed sign -12.50 [" in sentence
    assert labels(axes[0].yaxis)[1] == "alignment pass only" and set(labels(axes[1].yaxis)) == {""}
    assert "in points" in axes[0].get_xlabel() and "in points" not in axes[1].get_xlabel()


def test_every_planned_variant_has_words():
    for (name, value), words in pairs.CHANGED.items():
        made = table(OWN, cell("hetero-ssfl", [[0.1], [0.2], [0.3]], **{name: value}))
        assert list(pairs.variants(made)) == [words]


# --- pairs


def test_mixture_has_table_4s_layout(ax):
    whole = {"cnn_s": 0.0, "mlp": 0.1}
    cells = []
    for method, v in (("local-ssl", 0.6), ("hetero-ssfl", 0.7)):
        for words, text in ((whole, "cnn_s,mlp"), ({"mlp": 0.0}, "mlp")):
            one = cell(method, [[v], [v + 0.02]], architectures=words)
            cells.append(one | {"varied": {"architectures": text}})
    sentence = pairs.draw_mixture(ax, table(*cells))
    assert sentence.endswith("mlp alone 61.0 to 71.0; cnn_s with mlp 61.0 to 71.0; mlp with cnn_s 71.0 to 81.0.")
    assert labels(ax.yaxis) == ["mlp alone", "cnn_s with mlp", "mlp with cnn_s"]
    with pytest.raises(ValueError, match=r"^fixed.*mlp"):
        pairs.mixtures(table(*cells, copy.deepcopy(cells[-1])))
    for one in cells:
        for run in one["runs"]:
            words = run["metrics"]["probe_few_by_architecture"]
            run["metrics"]["random_probe_few_by_architecture"] = dict.fromkeys(words, 0.4)
    picture = Figure().subplots()
    assert pairs.draw_mixture(picture, table(*cells)).endswith(
        "Untrained: mlp alone 40.0, cnn_s with mlp 40.0, mlp with cnn_s 40.0."
    )
    crosses = {line.get_label(): line.get_xdata() for line in picture.lines}["untrained"]
    assert crosses == pytest.approx([40, 40, 40])
    with pytest.raises(ValueError, match="^metric"):
        pairs.by_architecture({**OWN, "runs": [{"metrics": {"probe_few": 1.0}}]})


def test_heads_side_by_side():
    cells = [cell(m, [[v], [v]], projector=p) for m in ("fedbyol", "local-ssl")
             for p, v in (("mlp", 0.3), ("batch_norm", 0.6))]  # fmt: skip
    axes = Figure().subplots(1, 2)
    sentence = pairs.draw_heads(axes, table(*cells))
    assert "rank: local SSL 3.0 to 6.0; FedBYOL 3.0 to 6.0. probe_few: local SSL 30.0 to 60.0" in sentence
    with pytest.raises(ValueError, match="^fixed"):
        pairs.draw_heads(axes, table(*cells[::2]))


def test_own_classes_beside_all(ax):
    without = copy.deepcopy(BYOL)
    for run in without["runs"]:
        del run["metrics"]["own_classes"]
    sentence = pairs.draw_own_classes(ax, table(OWN, LOCAL, without))
    assert sentence == (
        "Linear probe of all classes to that of a client's own: Hetero-SSFL 90.0 to 100.0; local SSL 80.0 to 90.0."
    )
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["all classes", "the client's own"]
    with pytest.raises(ValueError, match="^table"):
        pairs.draw_own_classes(ax, table(without))


# --- real comparisons, and nonsense

SMALL = {"rounds": 1, "local_epochs": 1, "train_samples": 150, "test_samples": 50, "alignment_samples": 20,
         "alignment_batch": 10, "clients": 3, "classes_per_client": 4, "lr": 0.1,
         "architectures": "mlp:8,mlp:6"}  # fmt: skip


def test_what_compare_returns_can_be_read():
    methods = ["hetero-ssfl", "local-ssl", "random-encoder", "raw-pixels"]
    made = compare(PAPER, methods, "digits", changes=SMALL, seeds=2, device="cpu")
    varied = compare(PAPER, ["hetero-ssfl"], "digits", changes=SMALL, seeds=2, vary={"mu": [0.0, 0.5]}, device="cpu")
    assert "raw pixels" in stored.draw_methods(Figure().subplots(1, 3), made)
    assert "random encoders" in stored.draw_rounds(Figure().subplots(1, 4), made)
    assert set(stored.METRICS) >= set(made["cells"][0]["curve"]) - {"round", "bytes"}
    assert "Hetero-SSFL" in stored.draw_mu(Figure().subplots(1, 3), varied)
    assert "local SSL" in pairs.draw_own_classes(Figure().subplots(), made)
    assert "mlp:6 with mlp:8" in pairs.draw_mixture(Figure().subplots(), made)
    assert "mu = 0.0" in pairs.draw_variants(Figure().subplots(1, 2), varied)
    own = stored.cells_of(made)["hetero-ssfl"]
    each = 4 * 20 * (8 + 6 + 8) / 3  # clients take architectures in turn; 2 d <= L + 1: representations
    assert stored.bytes_up(made, own) == pytest.approx(each)
    whole = own["runs"][0]["bytes_up"] + own["runs"][0]["bytes_down"]
    assert stored.bytes_so_far(own)[1].tolist() == [whole]
    assert "for nothing" in stored.draw_sent(Figure().subplots(), made)
