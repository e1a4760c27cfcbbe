"""Chapter 0's mathematics as functions: client gradients, drift, cohorts, averages of models.

The chapter derives each of these; here they are computed, batched over the clients and in the dtype of
the problem (float64 where an identity is checked).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import torch
from torch import Tensor
from torch.func import grad, vmap

from fedbook.federation.local import epochs, local_steps, sgd
from fedbook.federation.loop import Rounds
from fedbook.federation.population import Federation
from fedbook.federation.tree import tree_map
from fedbook.learning.models import Parameters, cross_entropy, stack
from fedbook.papers.fedavg import Config, FedAvg
from fedbook.papers.fedavg.problem import ImageProblem
from fedbook.randomness import stream


def flat(theta: Mapping[str, Tensor], axes: int = 0) -> Tensor:
    """All parameters in one vector, behind ``axes`` leading axes: [..., P]."""
    return torch.cat([x.flatten(axes) for x in theta.values()], dim=-1)


def shares(problem: ImageProblem) -> Tensor:
    """p_k = n_k / n of the first split, [K] float64."""
    sizes = problem.partitions[0].sizes.double()
    return sizes / sizes.sum()


def client_batches(problem: ImageProblem) -> dict[str, Tensor]:
    """Every client's whole data as one padded batch: x [K, n_max, ...], y [K, n_max], weight [K, n_max]."""
    split = problem.partitions[0]
    weight = torch.arange(split.table.shape[1]) < split.sizes[:, None]
    return {"x": problem.x[split.table], "y": problem.y[split.table], "weight": weight.to(problem.x)}


def client_losses(problem: ImageProblem, theta: Parameters) -> Tensor:
    """F_k(theta) for every client, [K]."""
    return vmap(cross_entropy(problem.model.apply), in_dims=(None, 0))(theta, client_batches(problem))


def client_gradients(problem: ImageProblem, theta: Parameters, weight_decay: float = 0.0) -> Tensor:
    """grad F_k(theta) for every client as rows, [K, P]; with ``weight_decay`` F_k has that times |theta|^2 / 2 more."""
    loss = cross_entropy(problem.model.apply)
    rows = flat(vmap(grad(loss), in_dims=(None, 0))(theta, client_batches(problem)), axes=1)
    return rows + weight_decay * flat(theta)


def drift_term(problem: ImageProblem, theta: Parameters, weight_decay: float = 0.0) -> Tensor:
    """sum_k p_k H_k(theta) grad F_k(theta), [P]: the gradient of half the mean squared client gradient."""
    leaves = {name: x.clone().requires_grad_() for name, x in theta.items()}
    squares = client_gradients(problem, leaves, weight_decay).square().sum(1)
    half = 0.5 * (shares(problem).to(problem.x) * squares).sum()
    return _gradient(half, leaves)


def curvature_term(problem: ImageProblem, theta: Parameters) -> Tensor:
    """H(theta) grad F(theta) of the pooled loss, [P]: the part of the drift term that one machine has too."""
    leaves = {name: x.clone().requires_grad_() for name, x in theta.items()}
    pooled = (shares(problem).to(problem.x)[:, None] * client_gradients(problem, leaves)).sum(0)
    return _gradient(0.5 * pooled.square().sum(), leaves)


def _gradient(value: Tensor, leaves: Parameters) -> Tensor:
    return flat(dict(zip(leaves, torch.autograd.grad(value, list(leaves.values())), strict=True)))


def quadratic_fixed_point(curvature: Tensor, optimum: Tensor, weight: Tensor, lr: float, local_steps: int) -> Tensor:
    """Where FedAvg comes to rest on F_k(w) = sum_d a_kd (w_d - b_kd)^2 / 2 with E full-batch local steps.

    Shapes: ``curvature`` a and ``optimum`` b [K, D], ``weight`` p [K] to [D].
    """
    steps = local_steps
    pull = weight[:, None] * (1 - (1 - lr * curvature) ** steps)
    return (pull * optimum).sum(0) / pull.sum(0)


def quadratic_paths(
    curvature: Tensor, optimum: Tensor, weight: Tensor, lr: float, local_steps: int, rounds: int, start: Tensor
) -> tuple[Tensor, Tensor]:
    """FedAvg itself on the same problem: the server's path [T+1, D] and the clients' steps [T, E+1, K, D]."""
    server, locals_ = [start], []
    for _ in range(rounds):
        w = server[-1].expand_as(optimum)
        walk = [w]
        for _ in range(local_steps):
            w = w - lr * curvature * (w - optimum)
            walk.append(w)
        locals_.append(torch.stack(walk))
        server.append((weight[:, None] * w).sum(0))
    return torch.stack(server), torch.stack(locals_)


def local_walks(problem: ImageProblem, theta: Parameters, lr: float, steps: int) -> Tensor:
    """Where every client's full-batch descent from ``theta`` leads, in a plane: [steps + 1, K, 2].

    The first axis of the plane is the direction in which the clients' average moves, the second the one in
    which their end points differ most. Unit: the length of the average's move.
    """
    slope = vmap(grad(cross_entropy(problem.model.apply)))
    batch, start = client_batches(problem), flat(theta)
    now = tree_map(lambda x: x.expand(len(batch["x"]), *x.shape).clone(), theta)
    path = [flat(now, axes=1) - start]
    for _ in range(steps):
        now = tree_map(lambda x, g: x - lr * g, now, slope(now, batch))
        path.append(flat(now, axes=1) - start)
    ends = path[-1]
    mean = ends.mean(0)
    forward = mean / mean.norm()
    sideways = ends - mean - ((ends - mean) @ forward)[:, None] * forward
    across = torch.linalg.svd(sideways, full_matrices=False).Vh[0]
    across = across * across[across.abs().argmax()].sign()  # the sign of a singular vector is arbitrary
    return torch.stack(path) @ torch.stack([forward, across], 1) / mean.norm()


def cohort_means(values: Tensor, weight: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Two averages over every cohort of ``size`` clients: C = K! / (size! (K - size)!) rows each.

    First the unbiased one, (K / size) sum of p_k v_k over the cohort; second FedAvg's, where the weights are
    normalised within the cohort. Shapes: ``values`` v [K, D], ``weight`` p [K] to [C, D] and [C, D].
    """
    clients = len(weight)
    cohorts = torch.tensor(list(combinations(range(clients), size)))
    p, v = weight[cohorts], values[cohorts]  # [C, size], [C, size, D]
    plain = clients / size * torch.einsum("cm,cmd->cd", p, v)
    return plain, torch.einsum("cm,cmd->cd", p / p.sum(1, keepdim=True), v)


def sampling_variance(values: Tensor, size: int) -> Tensor:
    """E |mean of a cohort - mean of all|^2 for equal weights: (1 - m/K) / m times the sample variance S^2.

    Shapes: ``values`` [K, D] to a scalar; S^2 has the divisor K - 1.
    """
    clients = len(values)
    spread = (values - values.mean(0)).square().sum() / (clients - 1)
    return (1 - size / clients) / size * spread


def trained_pair(
    problem: ImageProblem, same_start: bool, seed: int, num_epochs: int = 10, lr: float = 0.1
) -> Parameters:
    """The models of the first two clients after local training, from one common start or from two; [2, ...]."""
    data = problem.federation().groups["all"].rows(torch.zeros(2, dtype=torch.long), torch.arange(2))
    starts = [stream(seed, "init", client=0 if same_start else k) for k in range(2)]
    theta = tree_map(
        lambda x: x.to(problem.x.device), stack([problem.model.init(rng, problem.x.dtype) for rng in starts])
    )
    batches = epochs(data, [stream(seed, "pair", client=k) for k in range(2)], num_epochs, 50)
    carry, _ = local_steps(sgd(cross_entropy(problem.model.apply), lr), {"theta": theta}, data, batches)
    return carry["theta"]


def losses_between(problem: ImageProblem, pair: Parameters, mix: Tensor) -> Tensor:
    """The pooled training loss of (1 - m) first + m second model at every m of ``mix`` [M], [M]."""
    loss = cross_entropy(problem.model.apply)
    between = {
        k: torch.lerp(x[0].expand(len(mix), *x[0].shape), x[1], mix.view(-1, *[1] * (x.ndim - 1)).to(x))
        for k, x in pair.items()
    }
    batch = {"x": problem.x, "y": problem.y, "weight": torch.ones_like(problem.y, dtype=problem.x.dtype)}
    return torch.stack([loss(tree_map(lambda x, i=i: x[i], between), batch) for i in range(len(mix))])


def image_from_update(update: Mapping[str, Tensor]) -> Tensor:
    """The image of a client with ONE sample, read off its gradient of softmax regression.

    With logits W x + b the gradients are (p - y) x^T and (p - y), so any row of the first divided by its entry
    of the second is x. Shapes: weight [classes, D] and bias [classes] to [D].
    """
    weight, bias = update["1.weight"], update["1.bias"]
    row = bias.abs().argmax()
    return weight[row] / bias[row]


def hidden(problem: ImageProblem, theta: Parameters, x: Tensor) -> Tensor:
    """The representation of images in the "mlp" model: its 64 hidden units, [N, 64]."""
    return torch.relu(x.flatten(1) @ theta["1.weight"].T + theta["1.bias"])


def before_and_after(problem: ImageProblem, config: Config) -> tuple[Parameters, Parameters]:
    """Parameters before and after ``config.rounds`` rounds of the package's FedAvg on the first split."""
    data = Federation({"x": problem.x, "y": problem.y}, problem.partitions[0])
    rounds = Rounds(FedAvg(config, problem.model), data, config.rounds)
    before = tree_map(lambda x: x[0].clone(), rounds.server["theta"])
    list(rounds)
    return before, tree_map(lambda x: x[0], rounds.server["theta"])


def resting_gradients(
    problem: ImageProblem, lr: float, weight_decay: float, local_epochs: Sequence[int], steps: int
) -> tuple[Tensor, Tensor]:
    """Norm of the global gradient where FedAvg comes to rest, for each E: measured, and as predicted.

    Every run takes ``steps`` full-batch local steps in all (``steps`` / E rounds). The prediction is the
    first-order one, lr (E - 1) / 2 |sum p_k H_k grad F_k|, at the minimum of the global loss.
    Shapes: E values to two tensors of that length.
    """
    measured, p = [], shares(problem).to(problem.x)
    lowest = None
    for epochs_each in local_epochs:
        rounds = max(1, steps // epochs_each)
        config = Config(rounds=rounds, local_epochs=epochs_each, batch_size=0, lr=lr, weight_decay=weight_decay)
        _, theta = before_and_after(problem, config)
        measured.append((p[:, None] * client_gradients(problem, theta, weight_decay)).sum(0).norm())
        if epochs_each == 1:
            lowest = theta
    term = drift_term(problem, lowest, weight_decay).norm()
    return torch.stack(measured).cpu(), torch.tensor([lr * (e - 1) / 2 for e in local_epochs]).double() * float(term)
