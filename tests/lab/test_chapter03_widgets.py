"""Chapter 3's widgets: what they draw and say is computed here again; every control goes to both ends."""

import torch

from fedbook.geometry import Hyperboloid
from fedbook.lab import chapter03_widgets as widgets

MEANS = {"surface": "sphere", "spread": 1.0, "base": 1.0, "iterations": 4}


# --- two means


def test_the_frechet_mean_on_the_disk_is_least(axes):
    """No point near the star has a smaller sum of squared distances to the drawn points."""
    from fedbook.papers.prirfed.embedding import from_disk

    widgets.draw_means(axes, **(MEANS | {"surface": "hyperbolic plane"}))
    drawn = {line.get_label(): torch.from_numpy(line.get_xydata()) for line in axes[0].lines}
    H, points, star = Hyperboloid(), from_disk(drawn["points"]), from_disk(drawn["Fréchet mean"])[0]
    turn = torch.linspace(0, 6.2, 20, dtype=torch.float64)[:, None]
    near = H.exp(star, 0.02 * (turn.cos() * H.basis(star)[0] + turn.sin() * H.basis(star)[1]))
    cost = H.squared_dist(near[:, None], points).sum(1)
    assert float(H.squared_dist(star, points).sum()) < float(cost.min()) - 1e-3
    first = from_disk(drawn["tangent mean"])[0]
    base = from_disk(drawn["base $x$"])[0]
    assert torch.allclose(first, H.exp(base, H.log(base, points).mean(0)), atol=1e-9)


# --- the algorithm, live
