"""Partitions of the samples: every client holds some of them, with all their features.

All take ``(data, num_clients, seed, *, options)``, are disjoint, leave no client empty, list a client's
rows in ascending order and depend on nothing but their arguments. Memory: 8 * K * n_max bytes.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from fedbook import arguments
from fedbook.partition.table import Partition, check_labels
from fedbook.randomness import stream


def iid(num_samples: int, num_clients: int, seed: int) -> Partition:
    """Samples dealt at random, sizes even to within one. Complete.

    Raises: TypeError, ValueError (more clients than samples).
    """
    num_samples = arguments.integer("num_samples", num_samples, 1)
    num_clients = arguments.integer("num_clients", num_clients, 1, num_samples)
    return Partition.from_owners(stream(seed, "partition").permutation(num_samples) % num_clients, num_clients)


def shards(labels: Tensor, num_clients: int, seed: int, *, shards_per_client: int = 2) -> Partition:
    """The data sorted by label, cut into K*s runs, s runs dealt to each client. Complete.

    Runs are equal to within one sample, so sizes are to within s. A client sees s classes, fewer if two
    of its runs are of one class, more where a run crosses from one class to the next. Within a class the
    samples keep their order, so the seed decides only the deal.
    Shapes: ``labels`` [N] integers.
    Raises: TypeError, ValueError (more runs than samples).
    Source: McMahan et al. 2017, section 3 (s = 2).
    """
    labels = check_labels(labels).numpy()
    num_clients = arguments.integer("num_clients", num_clients, 1)
    each = arguments.integer("shards_per_client", shards_per_client, 1)
    runs = num_clients * each
    if runs > len(labels):
        raise ValueError(
            f"shards_per_client: got {each} for {num_clients} clients, {runs} shards in all; "
            f"allowed are at most the {len(labels)} samples"
        )
    client_of_run = stream(seed, "partition").permutation(runs) // each
    owners = np.empty(len(labels), dtype=np.int64)
    owners[np.argsort(labels, kind="stable")] = client_of_run[np.arange(len(labels)) * runs // len(labels)]
    return Partition.from_owners(owners, num_clients)


def classes(labels: Tensor, num_clients: int, seed: int, *, classes_per_client: int) -> Partition:
    """Every client holds exactly S = ``classes_per_client`` classes: the pathological (N, S) split.

    Every class goes to floor or ceil of K*S/C clients, at least one, and its samples are divided among
    them evenly to within one. Complete. C is the number of classes present; with K*S = C each is at one client.
    The deal cannot fail (see :func:`deal_classes`).
    Shapes: ``labels`` [N] integers.
    Raises: TypeError, ValueError (S > C, K*S < C, or a class with too few samples for its clients).
    Source: the (N, S) split of Zhang et al. (DP2-FedSAM); Makhija et al. (Hetero-SSFL).
    """
    labels = check_labels(labels).numpy()
    present, members = _by_class(labels)
    num_clients = arguments.integer("num_clients", num_clients, 1)
    each = arguments.integer("classes_per_client", classes_per_client, 1, len(present))
    if num_clients * each < len(present):
        raise ValueError(
            f"classes_per_client: got {each} for {num_clients} clients, {num_clients * each} places; "
            f"allowed is at least one place for each of the {len(present)} classes"
        )
    rng = stream(seed, "partition")
    dealt = deal_classes(num_clients, each, len(present), rng)
    owners = np.empty(len(labels), dtype=np.int64)
    for c, rows in enumerate(members):
        holders = rng.permutation(np.flatnonzero((dealt == c).any(1)))
        if len(rows) < len(holders):
            raise ValueError(
                f"labels: class {present[c]} has {len(rows)} samples; its {len(holders)} clients need "
                f"at least {len(holders)}: use fewer clients or fewer classes a client"
            )
        owners[rng.permutation(rows)] = holders[np.arange(len(rows)) % len(holders)]
    return Partition.from_owners(owners, num_clients)


def deal_classes(num_clients: int, classes_per_client: int, num_classes: int, rng: np.random.Generator) -> np.ndarray:
    """[K, S] distinct classes for each client, every class used floor or ceil of K*S/C times.

    Needs S <= C and K*S >= C, and then cannot fail. Each class c gets a quota q_c, floor or ceil of
    K*S/C, with sum K*S; client after client takes the S classes with the largest quotas left, ties at
    random. Claim: when r clients remain, sum q = r*S and max q <= r. At the start q_c <= ceil(K*S/C) <= K
    because S <= C. If it holds for r, then (a) at least S quotas are positive, for S-1 of them sum to at
    most (S-1)*r < r*S, so the client finds S distinct classes with quota left; (b) at most S quotas equal
    r, because they sum to r*S, so all of these are among the S largest and drop to r-1. So it holds for
    r-1, and at r = 0 all quotas are used up. Every class is used because q_c >= floor(K*S/C) >= 1.
    """
    places = num_clients * classes_per_client
    quota = np.full(num_classes, places // num_classes)
    quota[rng.permutation(num_classes)[: places % num_classes]] += 1
    dealt = np.empty((num_clients, classes_per_client), dtype=np.int64)
    for k in rng.permutation(num_clients):  # in random order, so that a client's number tells nothing
        shuffled = rng.permutation(num_classes)
        dealt[k] = shuffled[np.argsort(-quota[shuffled], kind="stable")[:classes_per_client]]
        quota[dealt[k]] -= 1
    return dealt


def dirichlet(labels: Tensor, num_clients: int, seed: int, *, alpha: float, minimum: int = 1) -> Partition:
    """Each class is divided by its own proportions p_c ~ Dir(alpha, ..., alpha) over the K clients. Complete.

    This is the variant of per-class proportions: sizes differ too. (The other one, Hsu et al. 2019, draws
    a label mixture for each client, of equal sizes.) alpha to infinity: every client has the mixture of
    the whole; alpha to 0: each class at one client. Clients left with fewer than ``minimum`` samples take
    random ones, one at a time, from the client that is largest at that moment: this always ends, where
    drawing again until all are large enough may not, and changes nothing if all are large enough.
    Shapes: ``labels`` [N] integers. ``alpha`` in (0, 1e9], without unit.
    Raises: TypeError, ValueError (K*minimum > N).
    Source: Yurochkin et al. 2019, section 4.
    """
    labels = check_labels(labels).numpy()
    num_clients = arguments.integer("num_clients", num_clients, 1)
    alpha = arguments.real("alpha", alpha, maximum=1e9, above=0.0)
    _check_minimum(minimum, num_clients, len(labels))
    rng = stream(seed, "partition")
    owners = np.empty(len(labels), dtype=np.int64)
    for rows in _by_class(labels)[1]:
        owners[rng.permutation(rows)] = np.repeat(np.arange(num_clients), _shares(len(rows), num_clients, alpha, rng))
    return Partition.from_owners(_raise_to_minimum(owners, num_clients, minimum, rng), num_clients)


def quantity(num_samples: int, num_clients: int, seed: int, *, alpha: float, minimum: int = 1) -> Partition:
    """Same distribution, different sizes: proportions ~ Dir(alpha, ..., alpha) over the K clients. Complete.

    Every client first gets ``minimum`` samples; the proportions divide the rest. Which samples is chance.
    ``alpha`` in (0, 1e9]: large for even sizes, small for a few large clients.
    Raises: TypeError, ValueError (K*minimum > N).
    Source: Li et al. 2022 (NIID-Bench), quantity skew.
    """
    num_samples = arguments.integer("num_samples", num_samples, 1)
    num_clients = arguments.integer("num_clients", num_clients, 1)
    alpha = arguments.real("alpha", alpha, maximum=1e9, above=0.0)
    minimum = _check_minimum(minimum, num_clients, num_samples)
    rng = stream(seed, "partition")
    sizes = minimum + _shares(num_samples - num_clients * minimum, num_clients, alpha, rng)
    return Partition.from_owners(rng.permutation(np.repeat(np.arange(num_clients), sizes)), num_clients)


def natural(groups: Tensor, num_clients: int | None = None, seed: int | None = None) -> Partition:
    """One client for each distinct value of ``groups`` (a writer, a hospital), in ascending order of the value.

    Complete without ``num_clients``. With it, that many groups are chosen at random (``seed`` is then
    needed) and the samples of the others belong to nobody. A client's group is ``groups[client(k)[0]]``.
    Shapes: ``groups`` [N] integers of at least 0.
    Raises: TypeError, ValueError (more clients than groups, no seed for a choice).
    """
    groups = check_labels(groups, "groups").numpy()
    values, owners = np.unique(groups, return_inverse=True)
    if num_clients is None:
        return Partition.from_owners(owners, len(values))
    num_clients = arguments.integer("num_clients", num_clients, 1, len(values))
    if seed is None:
        raise arguments.wrong(ValueError, "seed", seed, "a whole number where num_clients chooses among the groups")
    chosen = np.sort(stream(seed, "partition").choice(len(values), num_clients, replace=False))
    number = np.full(len(values), -1, dtype=np.int64)
    number[chosen] = np.arange(num_clients)
    return Partition.from_owners(number[owners], num_clients)


def _by_class(labels: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The classes present, ascending, and the rows of each."""
    present, counts = np.unique(labels, return_counts=True)
    return present, np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])


def _shares(total: int, clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """[K] whole numbers that sum to ``total``, in proportions drawn from Dir(alpha)."""
    # rounding the running sum keeps every share within one of its real value; the shuffle keeps places in the
    # list from mattering (of 3 samples and 10 equal proportions, the first place would never get one)
    cuts = np.rint(np.cumsum(rng.dirichlet(np.full(clients, alpha))) * total).astype(np.int64)
    cuts[-1] = total
    return rng.permutation(np.diff(cuts, prepend=0))


def _check_minimum(minimum: int, clients: int, samples: int) -> int:
    minimum = arguments.integer("minimum", minimum, 1)
    if clients * minimum > samples:
        raise ValueError(
            f"minimum: got {minimum} samples for each of {clients} clients, {clients * minimum} in all; "
            f"allowed are at most the {samples} samples there are"
        )
    return minimum


def _raise_to_minimum(owners: np.ndarray, clients: int, minimum: int, rng: np.random.Generator) -> np.ndarray:
    """Hands samples of the largest client to those that have fewer than ``minimum``, one at a time."""
    sizes = np.bincount(owners, minlength=clients)
    for poor in np.repeat(np.arange(clients), np.maximum(minimum - sizes, 0)):
        # K*minimum <= N and somebody is below minimum, so the largest is above it and stays at least there
        rich = int(sizes.argmax())
        owners[rng.choice(np.flatnonzero(owners == rich))] = poor
        sizes[[rich, poor]] += (-1, 1)
    return owners
