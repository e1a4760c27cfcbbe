"""Plain gradient descent with the losses' own gradients: what closed forms and solvers are compared with."""

from torch import Tensor

from fedbook.papers.prirfed.losses import RecordLoss, Records


def descend(
    loss: RecordLoss, x: Tensor, records: Records, weights: Tensor, lr: float, iterations: int, tolerance: float = 1e-12
) -> tuple[Tensor, Tensor]:
    """Riemannian gradient descent on sum_j w_j f(x, z_j): the last point [..., *point] and its gradient's norm [...].

    It ends when every norm is at most ``tolerance``.
    """
    manifold = loss.manifold
    for _ in range(iterations):
        g = loss.clipped_mean(x, records, weights, float("inf"))
        if bool((manifold.norm(x, g) <= tolerance).all()):
            break
        x = manifold.nearest(manifold.exp(x, -lr * g))
    return x, manifold.norm(x, loss.clipped_mean(x, records, weights, float("inf")))
