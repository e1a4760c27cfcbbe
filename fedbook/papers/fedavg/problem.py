"""Chapter 0's problem: images with labels, split among clients, and a classifier that learns them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from fedbook import arguments
from fedbook.federation.population import Federation
from fedbook.federation.tree import Tree, first_leaf, tree_map
from fedbook.learning.models import Model, model
from fedbook.learning.problems import ImageSettings, load_images
from fedbook.partition import Partition


@dataclass(frozen=True)
class ImageProblem:
    """Images, one split a seed, and a model.

    Shapes: ``x`` [N, C, H, W], ``y`` [N]; ``test_x`` [n, C, H, W], ``test_y`` [n]; one partition a seed.
    """

    name: str
    settings: ImageSettings
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    partitions: tuple[Partition, ...]
    model: Model

    def federation(self, pooled: bool = False) -> Federation:
        """The federation of these clients; ``pooled``: one client that holds everything."""
        splits = [p.pooled() if pooled else p for p in self.partitions]
        return Federation({"x": self.x, "y": self.y}, splits)

    def label_counts(self) -> Tensor:
        """[S, K, classes] number of samples of each class at each client."""
        labels = self.y.cpu()
        return torch.stack([p.counts(labels, len(self.classes)) for p in self.partitions])

    def evaluation(self) -> Callable[[Mapping[str, Tree], Mapping[str, Tree]], dict[str, Tensor]]:
        """``evaluate(server, clients)``: metrics [S] of the global model, or of personal ones if there is none.

        Global: accuracy and mean cross-entropy on the test set. Personal: ``accuracy`` is the mean over
        clients on test images in the client's own mixture of classes, ``accuracy_all`` the mean on all.
        """

        def evaluate(server: Mapping[str, Tree], clients: Mapping[str, Tree]) -> dict[str, Tensor]:
            if "theta" in server:
                hits, losses = self._judge(server["theta"])
                return {"accuracy": hits.mean(-1).cpu(), "loss": losses.double().mean(-1).cpu()}
            theta = clients["all"]["theta"]  # [S, K, ...]
            seeds, count = first_leaf(theta).shape[:2]
            hits, losses = self._judge(tree_map(lambda x: x.flatten(0, 1), theta))
            onehot = torch.nn.functional.one_hot(self.test_y, len(self.classes)).double()
            by_class = (hits @ onehot / onehot.sum(0).clamp(min=1)).view(seeds, count, -1).cpu()
            # classes without a test image are left out, and with them a client that has no other
            counts = self.label_counts().double() * (onehot.sum(0) > 0).cpu()
            judged = counts.sum(-1) > 0  # [S, K]
            own = (by_class * counts / counts.sum(-1, keepdim=True).clamp(min=1)).sum(-1).where(judged, 0.0)
            own = own.sum(1) / judged.sum(1)
            everything = hits.mean(-1).view(seeds, count).mean(1).cpu()
            return {
                "accuracy": own,
                "accuracy_all": everything,
                "loss": losses.double().mean(-1).view(seeds, count).mean(1).cpu(),
            }

        return evaluate

    def _judge(self, theta: Tree, chunk: int = 20_000) -> tuple[Tensor, Tensor]:
        """Hits (NaN where a model's numbers are not finite) and losses [R, n] of R models on the test set.

        Memory is bounded by ``chunk`` images times models.
        """
        rows, hits, losses = len(first_leaf(theta)), [], []
        width = max(1, min(len(self.test_y), chunk // max(rows, 1)))
        with torch.no_grad():
            for start in range(0, len(self.test_y), width):
                x, y = self.test_x[start : start + width], self.test_y[start : start + width]
                logits = vmap(self.model.apply, in_dims=(0, None))(theta, x)
                right = (logits.argmax(-1) == y).double()
                hits.append(torch.where(logits.isfinite().all(-1), right, math.nan))
                flat = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.repeat(rows), reduction="none")
                losses.append(flat.view(rows, -1))
        return torch.cat(hits, 1), torch.cat(losses, 1)


def image_problem(
    name: str,
    settings: ImageSettings | None = None,
    seeds: Sequence[int] = (0,),
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    root: str | None = None,
) -> ImageProblem:
    """The images called ``name`` (digits, mnist, fashion_mnist, cifar10), split anew for each seed.

    Pixels are shifted and scaled by the mean and deviation of all training pixels.
    Raises: TypeError, ValueError, fedbook.data.DataNotFound.
    """
    settings = arguments.instance("settings", settings or ImageSettings(), ImageSettings)
    images = load_images(name, settings, root)
    x, test_x = images.standardised(device, dtype)
    return ImageProblem(
        name=name, settings=settings, x=x, y=images.y.to(device), test_x=test_x, test_y=images.test_y.to(device),
        classes=images.classes, partitions=images.split(seeds),
        model=model(settings.model, images.shape, len(images.classes)).to(device),
    )  # fmt: skip
