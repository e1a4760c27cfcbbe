"""Chapter 3's figures say the numbers of their inputs, and what they draw lies where the geometry puts it."""

import math

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fedbook.geometry import SPD, Hyperboloid, Sphere
from fedbook.lab import chapter03_disk as pictures
from fedbook.lab import chapter03_figures as figures
from fedbook.lab import chapter03_sphere as sphere
from fedbook.lab.chapter03_simulation import Checked
from fedbook.papers.prirfed.embedding import from_disk, to_disk
from fedbook.papers.prirfed.synthetic import hyperbolic_ball_records
from fedbook.randomness import normal, stream
from tests.lab.checks import numbers

H, S, M = Hyperboloid(), Sphere(), SPD()


def looks(lines):
    return {(to_hex(line.get_color()), line.get_marker()) for line in lines}


# --- the observer


@pytest.mark.parametrize(("azimuth", "elevation"), [(0, 20), (130, -35), (-60, 80)])
def test_the_page_is_an_orthogonal_projection(azimuth, elevation):
    eye = sphere.View(azimuth, elevation)
    frame = np.vstack([eye.page, eye.toward])
    assert np.allclose(frame @ frame.T, np.eye(3), atol=1e-14) and np.linalg.det(frame) == pytest.approx(1)
    up = eye.flat([0.0, 0.0, 1.0])
    assert up[0] == pytest.approx(0, abs=1e-14) and up[1] > 0


def test_hidden_is_what_a_ray_to_the_observer_meets():
    """Walk from each point towards the observer; the ball hides it where the way goes through the inside."""
    eye = sphere.View(25, 30)
    rng = stream(0, "rays")
    points = np.concatenate([S.random_point(3, rng, (200,)).numpy(), 1.5 * normal((200, 3), rng).numpy()])
    way = points[:, None] + np.linspace(0, 6, 4001)[:, None] * eye.toward
    nearest = np.linalg.norm(way, axis=-1).min(1)
    clear = np.abs(nearest - 1) > 1e-2  # neither grazing nor on the visible side's surface
    on_surface = np.abs(np.linalg.norm(points, axis=1) - 1) < 1e-9
    assert (eye.hidden(points)[clear] == (nearest < 1)[clear]).all() and clear.sum() > 200
    facing = points @ eye.toward > 0.05
    assert not eye.hidden(points[on_surface & facing]).any()
    assert eye.hidden(-eye.toward) and not eye.hidden(eye.toward) and not eye.hidden(1.2 * eye.page[0])


def test_what_is_behind_is_faint(ax):
    eye = sphere.View(0, 0)
    turn = torch.linspace(0, 2 * math.pi, 90, dtype=torch.float64)
    eye.line(ax, torch.stack([turn.cos(), turn.sin(), 0 * turn], 1), color="black", label="equator")
    behind, front = sorted(ax.lines, key=lambda line: line.get_alpha() or 1.0)
    assert behind.get_alpha() == 0.35 and behind.get_linestyle() == "--" and behind.get_label().startswith("_")
    shown = np.isfinite(front.get_xdata().astype(float))
    assert (turn.cos().numpy()[shown] > -0.05).all() and front.get_label() == "equator"


# --- the sphere


def test_exp_log_and_the_step_off_the_sphere(ax):
    sentence = sphere.draw_sphere_geometry(ax)
    assert numbers(sentence, r"v is (\S+) long.*has length (\S+) and dist\(x, y\) = (\S+)") == [1.1] * 3
    assert "is v again" in sentence and f"{math.hypot(1, 1.1) - 1:.3g} off the sphere" in sentence
    geodesic = next(line for line in ax.lines if len(line.get_xdata()) == 80)
    markers = {line.get_marker(): line.get_xydata()[0] for line in ax.lines if len(line.get_xdata()) == 1}
    assert np.allclose(geodesic.get_xydata()[[0, -1]], [markers["o"], markers["s"]])
    assert len([t for t in ax.texts if t.arrow_patch is not None and not t.get_text()]) == 1


def test_beyond_pi_the_logarithm_goes_round_the_other_side(ax):
    sentence = sphere.draw_sphere_geometry(ax, length=4.4)
    back = 2 * math.pi - 4.4
    assert f"dist(x, y) = {back:.3g}; Log_x(y) has length {back:.3g}, round the other side" in sentence
    assert len([t for t in ax.texts if t.arrow_patch is not None and not t.get_text()]) == 2
    (x_low, x_high), (y_low, y_high) = ax.get_xlim(), ax.get_ylim()
    for text in (t for t in ax.texts if t.arrow_patch is not None):
        assert x_low < text.xy[0] < x_high and y_low < text.xy[1] < y_high


def test_a_quarter_of_a_turn_by_transport(ax, monkeypatch):
    sentence = sphere.draw_transport(ax)
    assert "turned by 90.0 degrees" in sentence and "1.571" in sentence and sentence.endswith("still 0.38.")
    monkeypatch.setattr(Sphere, "transport", lambda self, x, y, u: u)
    assert "turned by 0.0 degrees" in sphere.draw_transport(Figure().subplots())


def test_tangent_noise_keeps_its_distances(axes):
    sentence = sphere.draw_tangent_noise(axes, std=0.25, draws=300, seed=2)
    x = sphere.place(-12, 42)
    noise = 0.25 * S.project(x, normal((300, 3), stream(2, "tangent noise")))
    square, share = float(noise.square().sum(1).mean()), float((noise.norm(dim=1) <= 0.5).double().mean())
    assert f"mean square length is {square:.3f} (d std^2 = 0.125), {share:.0%} lie" in sentence
    eye = sphere.View(10, 24)
    drawn = np.concatenate([line.get_xydata() for line in axes[1].lines if line.get_markersize() == 2.6])
    expected = eye.flat(S.exp(x, noise))
    assert sorted(map(tuple, drawn.round(9))) == sorted(map(tuple, expected.round(9)))
    flat = np.concatenate([line.get_xydata() for line in axes[0].lines if line.get_markersize() == 2.6])
    assert sorted(map(tuple, flat.round(9))) == sorted(map(tuple, eye.flat(x + noise).round(9)))
    assert [t.get_text() for t in axes[1].get_legend().get_texts()] == ["0.25 from $x$", "0.5 from $x$"]


# --- the hyperbolic plane


def test_hyperbolic_noise_by_closed_forms(axes):
    """Away from the origin the projected ambient noise has variance cosh 2r, across it 1."""
    r, std = 1.6, 0.25
    sentence = figures.draw_hyperbolic_noise(axes, distance=r, std=std, draws=20_000)
    right, seen, wrong, also = numbers(
        sentence, r"tangent Gaussian (\S+) \(measured (\S+)\); projected ambient noise (\S+) \(measured (\S+)\)"
    )
    assert right == 0.125 and wrong == pytest.approx((math.cosh(2 * r) + 1) * std**2, rel=5e-3)
    assert seen == pytest.approx(right, rel=0.03) and also == pytest.approx(wrong, rel=0.04)
    assert f"{math.sqrt(math.cosh(2 * r)):.3g} times too long" in sentence
    rings = [line.get_xydata() for line in axes[0].lines if line.get_marker() == "" and line.get_linewidth() == 2.0]
    assert [ring.max(0) for ring in rings] == [
        pytest.approx([k * std * s, k * std], rel=1e-3) for s in (1, math.sqrt(math.cosh(2 * r))) for k in (1, 2)
    ]
    disk_rings = [line.get_xydata() for line in axes[1].lines if line.get_linewidth() == 2.0]
    x = torch.tensor([math.cosh(r), math.sinh(r), 0.0], dtype=torch.float64)
    for k in (1, 2):  # circles around x: all points at k std
        assert H.dist(x, from_disk(torch.from_numpy(disk_rings[k - 1]))).tolist() == pytest.approx([k * std] * 121)
    assert len(looks(line for line in axes[0].lines if line.get_marker() in ("o", "x"))) == 2


def test_moving_to_the_centre_is_an_isometry():
    points = hyperbolic_ball_records(12, radius=3.0)
    moved = pictures.moved_to_centre(points[4], points)
    assert torch.allclose(moved[4], H.origin(3), atol=1e-12)
    apart = H.dist(points[:, None], points), H.dist(moved[:, None], moved)
    assert torch.allclose(*apart, atol=1e-6) and float(apart[0].max()) > 3


def test_arcs_are_geodesics():
    points = hyperbolic_ball_records(40, radius=4.0)
    x, y = points[:20], points[20:]
    arcs = torch.from_numpy(pictures.arcs(x, y))
    assert torch.allclose(arcs[:, 0], to_disk(x)) and torch.allclose(arcs[:, -1], to_disk(y))
    way = from_disk(arcs)
    detour = H.dist(x[:, None], way) + H.dist(way, y[:, None]) - H.dist(x, y)[:, None]
    assert float(detour.abs().max()) < 1e-9
    steps = arcs.diff(dim=1).norm(dim=-1)
    assert float((steps.max(1).values / arcs.diff(dim=1).norm(dim=-1).sum(1)).max()) < 0.2  # no visible corners


EDGES = torch.tensor([[1, 0], [2, 0], [3, 1], [4, 1], [5, 2]])
NAMES = ("mammal", "primate", "carnivore", "big_ape", "monkey", "cat")


def tree():
    angle = torch.tensor([0.0, 1.0, -1.0, 1.3, 0.7, -1.0], dtype=torch.float64)
    r = torch.tensor([0.0, 1.2, 1.2, 2.4, 2.4, 2.4], dtype=torch.float64)
    return torch.stack([r.cosh(), r.sinh() * angle.cos(), r.sinh() * angle.sin()], 1)


def predictions():
    points, basis = tree(), H.basis(tree()[1])
    return {"one": H.exp(points[1], 0.5 * basis[0]), "runs": H.exp(points[1], torch.tensor([[0.2], [0.4]]) * basis[1])}


@pytest.mark.parametrize("radius", [None, 2.0])
def test_poincare(ax, radius):
    points, found = tree(), predictions()
    sentence = figures.draw_poincare(ax, points, EDGES, 1, found, names=NAMES, radius=radius)
    deviation = math.sqrt(0.02)
    assert f"one 0.5; runs 0.3 ± {deviation:.2g}" in sentence and "(2 runs, mean" in sentence
    drawn = {line.get_label(): line.get_xydata() for line in ax.lines}
    place = (lambda y: y) if radius is None else (lambda y: pictures.moved_to_centre(points[1], y))
    for label, where in found.items():
        assert np.allclose(drawn[label], to_disk(place(where.reshape(-1, 3))))
    assert np.allclose(drawn["neighbours"], to_disk(place(points[[0, 3, 4]])))
    (true,) = drawn["primate: true place"]
    assert np.allclose(true, to_disk(place(points[1]))) and (radius is None or np.abs(true).max() < 1e-9)
    others, own = (c.get_segments() for c in ax.collections)
    assert len(others) == 2 and len(own) == 3
    words = {t.get_text() for t in ax.texts}
    assert words == (set() if radius is None else {"mammal", "big ape", "monkey"})
    assert len(looks(line for line in ax.lines if line.get_label() in found)) == 2
    assert ax.get_xlim()[1] == pytest.approx(1.02 if radius is None else math.tanh(1.0))


def test_poincare_of_one_run_and_no_edges(ax):
    sentence = figures.draw_poincare(ax, tree(), EDGES[:0], 2, {"here": tree()[2]})
    assert sentence == "Distance from the true place (one run): here 0."


# --- matrices


def area(polygon):
    x, y = polygon.T
    return 0.5 * abs(float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))))


def test_ellipses_show_determinants(axes):
    sentence = figures.draw_spd(axes)
    geodesic, straight = (line.get_ydata() for line in axes[1].lines)
    turn = [np.array([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]) for a in (0.35, 1.75)]
    first, last = (r @ np.diag([6.0, 0.5]) @ r.T for r in turn)
    middle = np.linalg.det((first + last) / 2)
    assert geodesic.tolist() == pytest.approx([3.0] * 7) and straight[3] == pytest.approx(middle)
    assert f"half way 3 on the geodesic and {middle:.3g} on the straight line" in sentence
    areas = [area(p.get_xy()) for p in axes[0].patches]
    assert areas == pytest.approx([math.pi * math.sqrt(d) for d in (*geodesic, *straight)], rel=2e-3)


def test_noise_on_numbers_breaks_as_the_normal_law_says():
    """1 x 1 matrices: x + s x w is not positive with probability Phi(-1 / s); Exp never leaves the positive numbers."""
    x = torch.linspace(0.1, 9, 20_000, dtype=torch.float64).view(-1, 1, 1)
    found = figures.broken_by_noise(x, (0.3, 0.5, 1.0, 3.0))
    expected = [0.5 * math.erfc(1 / s / math.sqrt(2)) for s in (0.3, 0.5, 1.0, 3.0)]
    for share, right in zip(found.entries.tolist(), expected, strict=True):
        assert abs(share - right) < 4 * math.sqrt(right * (1 - right) / 20_000) + 1e-4
    assert found.tangent.tolist() == [0.0] * 4


def test_both_noises_agree_at_the_identity_to_first_order():
    """There the size means the same: half the noise leaves a quarter of the difference."""
    eye, w = 2.5 * torch.eye(4, dtype=torch.float64), normal((10,), stream(0, "first order"))
    gaps = []
    for s in (1e-2, 5e-3):
        straight = eye + s * 2.5 * M.tangent_gaussian(torch.eye(4, dtype=torch.float64), w)
        gaps.append(float((M.exp(eye, s * M.tangent_gaussian(eye, w)) - straight).norm()))
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.05) and gaps[0] < 1e-2


def test_the_size_is_in_units_of_the_mean_eigenvalue():
    """diag(1, h), h tiny, breaks when h + s m w < 0 (to first order): with probability Phi(-h / (s m)), m = 1/2."""
    thin = torch.diag(torch.tensor([1.0, 1e-4], dtype=torch.float64)).expand(5000, 2, 2)
    (share,) = figures.broken_by_noise(thin, (2e-4,)).entries.tolist()
    assert share == pytest.approx(0.1587, abs=4 * math.sqrt(0.1587 * 0.8413 / 5000))


def test_noise_breaks_flat_matrices_first(ax):
    thin = torch.diag(torch.tensor([1.0, 1e-4], dtype=torch.float64)).expand(500, 2, 2)
    found = figures.broken_by_noise(thin, (1e-6, 1e-2, 1.0))
    assert found.entries[0] == 0 and found.entries[1] > 0.4 and (found.tangent == 0).all()
    sentence = figures.draw_broken(ax, found)
    (at,) = numbers(sentence, r"half of them from s = (\S+) on")
    assert found.entries[found.sizes >= at].min() >= 0.5
    top = 100 * float(found.entries.max())
    assert sentence.startswith(f"Noise on the entries breaks up to {top:.3g} % of the matrices")
    assert sentence.endswith("tangent noise breaks up to 0 % of the matrices.")
    assert ax.get_xscale() == "log" and len(looks(ax.lines)) == 2


# --- Table 1 and the theorems


def test_bounds_in_pairs(ax):
    rows = {
        "5.1": Checked(1e-3, 1e-4, 0.4),
        "5.4": (2e-3, 3e-3, {"corrected": 4e-3, "printed": 9e-3}),
        "5.6": (0.2, 0.0, {"printed": 1e-3}),
    }
    sentence = figures.draw_bounds(ax, rows)
    assert sentence == (
        "3 inequalities measured, broken: 5.6 (printed); the measured side is at most 200 times the right side."
    )
    labels = [t.get_text() for t in ax.get_legend().get_texts()]
    assert labels == ["measured, ± 2 standard errors", "right side", "corrected", "printed"]
    at = {(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in ax.lines if len(line.get_xdata()) == 1}
    assert at == {(1e-3, 0), (0.4, 0), (2e-3, 1), (4e-3, 1), (9e-3, 1), (0.2, 2), (1e-3, 2)}
    bars = [line.get_xdata() for line in ax.lines if line.get_marker() == "|"]
    assert bars[0] == pytest.approx([8e-4, 1.2e-3]) and bars[1] == pytest.approx([2e-4, 8e-3])
    assert [t.get_text() for t in ax.get_yticklabels()] == list(rows) and ax.get_xscale() == "log"
    assert "none is broken" in figures.draw_bounds(Figure().subplots(), {"5.1": rows["5.1"]})


# --- nonsense
