"""Chapter 2's clouds and pictures: what they draw and say is computed here again, with NumPy."""

import itertools
import math
import re

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fedbook.lab import chapter02_clouds as clouds
from fedbook.lab import show
from fedbook.randomness import normal, stream

STILL = {"angle": 0.0, "scale": 1.0, "shear": 0.0, "added": "nothing"}
H40 = np.eye(40) - 1 / 40
REPRESENTATIONS = {f"client {d}": normal((30, d), stream(d, "pictures")) + d for d in (5, 1, 12)}
LABELS = torch.arange(30) % 9


def axes(count):
    return Figure().subplots(1, count, squeeze=False)[0]


def cka(a, b, centre=True):
    """By NumPy, from the kernels."""
    k, m = (np.asarray(x) @ np.asarray(x).T for x in (a, b))
    if centre:
        h = np.eye(len(k)) - 1 / len(k)
        k, m = h @ k @ h, h @ m @ h
    return (k * m).sum() / np.sqrt((k * k).sum() * (m * m).sum())


def numbers(text):
    return [float(v) for v in re.findall(r"-?\d+\.\d+", text)]


# --- two clouds


def test_the_letter_is_centred_and_named():
    points, stroke = clouds.letter()
    assert points.shape == (40, 2) and stroke.bincount().tolist() == [20, 12, 8]
    assert torch.allclose(points.mean(0), torch.zeros(2).double(), atol=1e-15)
    assert float(points[stroke == 0, 0].std()) < 1e-12 and float(points[stroke == 1, 1].std()) < 1e-12


def test_the_second_cloud_is_the_transformed_first():
    a, b = (x.numpy() for x in clouds.two_clouds(90, 2.0, 0.5, "nothing"))
    assert np.allclose(b, 2 * np.stack([-(a[:, 1] + 0.5 * a[:, 0]), a[:, 0]], 1), atol=1e-14)
    a, b = (x.numpy() for x in clouds.two_clouds(0, 4.0, 0, "shift 2"))
    assert np.allclose(a.mean(0), 0) and np.allclose(b - b.mean(0), 4 * a)
    assert np.allclose(b.mean(0), 3 * np.sqrt(np.square(4 * a).mean()))
    moved = clouds.two_clouds(0, 4.0, 0, "shift both")[0].numpy()
    assert np.allclose(moved - a, 3 * np.sqrt(np.square(a).mean()))
    for amount in (0.3, 1.0):
        a, b = (x.numpy() for x in clouds.two_clouds(0, 4.0, 0, f"noise {amount:g}"))
        size = np.sqrt(np.square(b - 4 * a).mean() / np.square(4 * a).mean())
        assert size == pytest.approx(amount, rel=0.3)  # 80 numbers: standard error of 8 %


@pytest.mark.parametrize("angle", [-75, 180])
@pytest.mark.parametrize("scale", [0.2, 5.0])
@pytest.mark.parametrize("added", ["nothing", "shift 2", "shift both"])
def test_rotation_scale_and_shift_leave_centred_cka_at_one(angle, scale, added):
    a, b = clouds.two_clouds(angle, scale, 0.0, added)
    assert cka(a, b) == pytest.approx(1, abs=1e-12)
    sentence = clouds.draw_clouds(axes(3), angle=angle, scale=scale, shear=0.0, added=added)
    assert sentence.startswith("Centred CKA = 1.000;")
    printed = cka(a, b, centre=False)
    assert numbers(sentence)[1] == pytest.approx(printed, abs=6e-4)
    assert (printed < 0.2) == (added == "shift 2") and (printed == pytest.approx(1)) == (added == "nothing")


def test_shear_and_noise_do_not():
    of = {}
    for name, change in {"shear": {"shear": -2.0}, "more": {"shear": -3.0}, "noise": {"added": "noise 0.3"},
                         "loud": {"added": "noise 1"}}.items():  # fmt: skip
        found = numbers(clouds.draw_clouds(axes(3), **STILL | change))
        a, b = clouds.two_clouds(**STILL | change)
        of[name] = found[0]
        assert found[0] == pytest.approx(cka(a, b), abs=6e-4)
        assert found[-2] == pytest.approx(found[-1], abs=2e-3)
        assert found[-1] == pytest.approx(math.sqrt(2 - 2 * cka(a, b)), abs=6e-4)
    assert of["more"] < of["shear"] < 0.5 and of["loud"] < of["noise"] < 1


def test_a_common_offset_hides_what_shear_did():
    both = STILL | {"shear": -3.0, "added": "shift both"}
    found = numbers(clouds.draw_clouds(axes(3), **both))
    assert found[0] < 0.3 < 0.9 < found[1]
    assert found[0] == numbers(clouds.draw_clouds(axes(3), **STILL | {"shear": -3.0}))[0]


def test_clouds_are_drawn():
    values = {"angle": 45, "scale": 1.5, "shear": 0.75, "added": "noise 0.3"}
    spots = axes(3)
    clouds.draw_clouds(spots, **values)
    a, b = (x.numpy() for x in clouds.two_clouds(**values))
    points = [line for line in spots[0].lines if line.get_linestyle() == "None"]
    strokes, means = points[:6], points[6]
    assert np.allclose(np.concatenate([line.get_xydata() for line in strokes[::2]]), a)
    assert np.allclose(np.concatenate([line.get_xydata() for line in strokes[1::2]]), b)
    assert len({(to_hex(x.get_color()), x.get_marker()) for x in strokes}) == 3
    assert all(to_hex(x.get_markerfacecolor()) == "#ffffff" for x in strokes[1::2])
    assert np.allclose(means.get_xydata(), [a.mean(0), b.mean(0)])
    joined = spots[0].collections[0].get_segments()
    assert len(joined) == 10 and np.allclose(joined[3], [a[12], b[12]])
    for ax, x in zip(spots[1:], (a, b), strict=True):
        k = H40 @ x @ x.T @ H40
        assert np.allclose(ax.images[0].get_array(), k / np.linalg.norm(k), atol=1e-12)
    assert f"CKA {cka(a, b):.3f}, as printed {cka(a, b, centre=False):.3f}" in spots[2].get_title()
    assert spots[1].images[0].get_clim() == spots[2].images[0].get_clim()


def test_the_explorer_sweeps_every_control(monkeypatch):
    monkeypatch.setenv("FEDBOOK_HEADLESS", "1")
    seen = []
    monkeypatch.setattr(show, "show_static", lambda *shown: seen.append(shown))
    explorer = clouds.clouds_explorer()
    assert len(seen) == 1 and set(explorer.specs) == {"angle", "scale", "shear", "added"}
    assert all(re.match(r"\S  \w", spec.label) for spec in explorer.specs.values())  # symbol and word
    swept = explorer.sweep()
    ends = ["angle = -180", "angle = 180", "scale = 0.2", "scale = 5.0", "shear = -3.0", "shear = 3.0"]
    for stop in ends + [f"added = {value!r}" for value in clouds.ADDED.values() if value != "nothing"]:
        assert f"{stop}, others at default" in swept
    assert len([s for s in swept if s.startswith("preset")]) == len(explorer.presets) == 4
    explorer.set(shear=-3.0, added="shift both")
    assert "sheared by -3; added: shift of both, by 3." in explorer.sentence
    explorer.reset()
    assert explorer.sentence.startswith("Centred CKA = 1.000; by equation (1) as printed, without centring, 1.000.")


# --- kernels


def test_kernels_are_ordered_by_class():
    grams = {label: a @ a.T for label, a in REPRESENTATIONS.items()}
    spots = axes(3)
    sentence = clouds.draw_grams(spots, grams, LABELS)
    order = sorted(range(30), key=lambda i: (int(LABELS[i]), i))
    h = np.eye(30) - 1 / 30
    own = np.equal.outer(LABELS.numpy(), LABELS.numpy()).astype(float)
    values, shown = numbers(sentence), []
    for ax, (label, k), value in zip(spots, grams.items(), values, strict=True):
        k = h @ k.numpy() @ h
        shown.append(ax.images[0].get_array())
        assert np.allclose(shown[-1], (k / np.linalg.norm(k))[order][:, order]) and ax.get_title() == label
        m = h @ own @ h
        assert value == pytest.approx((k * m).sum() / np.linalg.norm(k) / np.linalg.norm(m), abs=6e-4)
        assert len(ax.lines) == 2 * 8 and [t.get_text() for t in ax.get_xticklabels()] == [str(c) for c in range(9)]
    assert spots[0].lines[0].get_ydata()[0] == 3.5  # four images of class 0
    assert len({ax.images[0].get_clim() for ax in spots}) == 1


def test_a_kernel_of_classes_alone_is_one_and_a_constant_one_is_none():
    own = (LABELS[:, None] == LABELS).float()
    sentence = clouds.draw_grams(axes(2), {"own": 3 * own + 2, "none": torch.ones(30, 30)}, LABELS.tolist())
    assert sentence == "CKA of each kernel with that of the 9 classes alone: own 1.000, none 0.000."


# --- representations


def test_planes_are_principal_components_turned_to_the_first_client():
    found = clouds.in_one_plane(REPRESENTATIONS)
    for label, a in REPRESENTATIONS.items():
        a = a.numpy() - a.numpy().mean(0)
        values, vectors = np.linalg.eigh(a.T @ a)
        flat = a @ vectors[:, ::-1][:, :2]
        k, own = flat @ flat.T, (found[label] @ found[label].T).numpy()
        assert np.allclose(own / np.linalg.norm(own), k / np.linalg.norm(k)), label
        assert float(found[label].norm()) == pytest.approx(1) and found[label].shape == (30, 2)
    first, other = found["client 5"].numpy(), found["client 12"].numpy()
    best = (first * other).sum()
    for turn in np.linspace(0, 2 * np.pi, 60):
        c, s = math.cos(turn), math.sin(turn)
        for sign in (1, -1):
            assert (first * (other @ np.array([[c, s], [-sign * s, sign * c]]))).sum() <= best + 1e-12


def test_a_turned_mirrored_client_looks_the_same():
    a = REPRESENTATIONS["client 5"]
    turn = torch.linalg.qr(normal((5, 5), stream(0, "turn"))).Q
    found = clouds.in_one_plane({"a": a, "b": -3 * a @ turn + 7})
    assert torch.allclose(found["a"], found["b"], atol=1e-10)


def test_embedding_is_drawn():
    spots = axes(3)
    sentence = clouds.draw_embedding(spots, REPRESENTATIONS, LABELS)
    flat = clouds.in_one_plane(REPRESENTATIONS)
    for ax, points in zip(spots, flat.values(), strict=True):
        looks = {(to_hex(x.get_color()), x.get_marker(), to_hex(x.get_markerfacecolor())) for x in ax.lines}
        assert len(ax.lines) == len(looks) == 9
        assert len({(c, m) for c, m, _ in looks}) == 9  # apart even without the filling
        assert np.allclose(ax.lines[4].get_xydata(), points[LABELS == 4])
    shares = []
    for a in REPRESENTATIONS.values():
        values = np.linalg.eigvalsh(np.cov(a.numpy().T).reshape(a.shape[1], -1))[::-1]
        shares.append(values[:2].sum() / values.sum())
    assert [int(v) / 100 for v in re.findall(r"(\d+)%", sentence)] == pytest.approx(shares, abs=6e-3)
    right = [cka(a, b) for a, b in itertools.combinations(REPRESENTATIONS.values(), 2)]
    assert numbers(sentence.split("CKA of two clients:")[1]) == pytest.approx(right, abs=6e-3)
    legend = spots[2].get_legend()
    assert [t.get_text() for t in legend.get_texts()] == [str(c) for c in range(9)]


def test_one_client_and_constant_ones_are_drawn():
    made = {"constant": torch.ones(5, 3), "wide": normal((5, 40), stream(0, "wide"))}
    sentence = clouds.draw_embedding(axes(2), made, [0, 1, 0, 1, 1])
    assert "constant 0%" in sentence and sentence.endswith("CKA of two clients: 0.00.")
    kinds = {f"{kind}: {i}": normal((5, 3), stream(i, kind)) for kind in ("alone", "aligned") for i in (1, 2, 3)}
    told = clouds.draw_embedding(axes(6), kinds, [0, 1, 0, 1, 1]).split("two clients: ")[1]
    for kind, part in zip(("alone", "aligned"), told.split("; "), strict=True):  # 1 and 2, 1 and 3, 2 and 3 of each
        pairs = itertools.combinations([a for name, a in kinds.items() if name.startswith(kind)], 2)
        assert part.startswith(f"{kind} ") and numbers(part) == pytest.approx([cka(a, b) for a, b in pairs], abs=6e-3)
    assert "CKA" not in clouds.draw_embedding(axes(1), {"wide": made["wide"]}, [0, 1, 0, 1, 1])


# --- bytes


def test_crossings_of_powers_are_exact():
    x = np.array([10.0, 70, 300, 5000])
    ax = axes(1)[0]
    curves = {"kernel": 4 * x**2, "rows": 4 * 123 * x, "weights": np.full(4, 4e6)}
    sentence = clouds.draw_bytes(ax, x, curves, "L  images")
    marked = sorted(tuple(line.get_xydata()[0]) for line in ax.lines if line.get_markerfacecolor() == "none")
    assert np.allclose(marked, [(123, 4 * 123**2), (1000, 4e6)])  # rows reach the weights at 8130, beyond the picture
    assert sentence == ("L images = 5,000: kernel 100 MB; rows 2.46 MB; weights 4 MB. "
                        "Equal: kernel and rows at 123 (60.5 kB); kernel and weights at 1,000 (4 MB).")  # fmt: skip
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert np.allclose(ax.lines[1].get_ydata(), 4 * 123 * x)


def test_crossings_at_a_given_point_and_none():
    x = np.array([1.0, 2.0, 4.0])
    assert clouds.crossings(x, x**2, 2 * x) == [(2.0, 4.0)]
    assert clouds.crossings(x, 2 * x, x**2) == [(2.0, 4.0)]
    assert clouds.crossings(x, np.array([1.0, 2.0, 5.0]), np.array([1.5, 2.0, 6.0])) == []  # touches
    assert clouds.draw_bytes(axes(1)[0], [1, 2], {"a": [1, 1], "b": [2, 2e9]}, "d").endswith("No two curves cross.")


# --- nonsense
