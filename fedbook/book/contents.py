"""The chapters of the book, in order: what they are called, where they lie, at which sizes they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedbook.arguments import one_of, wrong

PROFILES = ("quick", "standard", "paper")


def _sizes(**profiles: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """A read-only table profile -> parameters; a profile that is not given keeps the notebook's own values."""
    return MappingProxyType({name: MappingProxyType(dict(profiles.get(name, {}))) for name in PROFILES})


@dataclass(frozen=True)
class Chapter:
    """One chapter: ``notebooks/NN_slug.ipynb``.

    ``parameters`` holds, for each profile, the values that replace those of the notebook's parameters
    cell; an empty table runs the notebook as it is committed. ``budget_s`` is what a quick run may take.
    """

    number: int
    slug: str
    title: str
    citation: str
    claim: str
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=_sizes)
    budget_s: float = 75.0

    @property
    def name(self) -> str:
        """Number and slug, e.g. ``00_start_here``: the file name without its ending."""
        return f"{self.number:02d}_{self.slug}"

    @property
    def file(self) -> str:
        """The notebook's file name, e.g. ``00_start_here.ipynb``."""
        return f"{self.name}.ipynb"

    @property
    def page(self) -> str:
        """The file name of the rendered page, e.g. ``00_start_here.html``."""
        return f"{self.name}.html"

    def sizes(self, profile: str) -> dict[str, Any]:
        """The parameters of ``profile``. Raises: TypeError, ValueError."""
        return dict(self.parameters[one_of("profile", profile, PROFILES)])


CHAPTERS: tuple[Chapter, ...] = (
    Chapter(
        number=0,
        slug="start_here",
        title="Start here: federated learning from nothing to FedAvg",
        citation="B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas. Communication-Efficient Learning of "
        "Deep Networks from Decentralized Data. AISTATS 2017, arXiv 1602.05629.",
        claim="Averaging the models of clients that train locally learns one shared model without moving their data.",
        parameters=_sizes(
            quick={
                "train_samples": 1000,
                "test_samples": 500,
                "clients": 10,
                "rounds": 5,
                "repetitions": 2,
                "steps_to_rest": 200,
            },
            paper={"train_samples": 0, "test_samples": 0, "clients": 100, "rounds": 200},
        ),
    ),
    Chapter(
        number=1,
        slug="fedsc",
        title="FedSC: spectral contrast across clients",
        citation="S. Jing, A. Yu, S. Zhang, S. Zhang. FedSC: Provable Federated Self-supervised Learning with Spectral "
        "Contrastive Objective over Non-i.i.d. Data. ICML 2024.",
        claim="Sharing one correlation matrix a client lets samples of different clients be contrasted.",
        parameters=_sizes(
            quick={"repetitions": 1, "samples": 20, "descent_rounds": 80, "draws": 500},
            paper={"rounds": 200, "repetitions": 10},
        ),
    ),
    Chapter(
        number=2,
        slug="hetero_ssfl",
        title="Hetero-SSFL: self-supervision with a different network at every client",
        citation="D. Makhija, N. Ho, J. Ghosh. Federated Self-supervised Learning for Heterogeneous Clients. 2022, "
        "arXiv 2205.12493.",
        claim="Aligning representations of one public set lets clients with different networks learn from each other.",
        parameters=_sizes(
            quick={"rounds": 3, "repetitions": 1, "draws": 500, "drift_rounds": 6},
            paper={"rounds": 200, "repetitions": 3},
        ),
    ),
    Chapter(
        number=3,
        slug="prirfed",
        title="PriRFed: private federated learning on manifolds",
        citation="Z. Huang, W. Huang, P. Jawanpuria, B. Mishra. Federated Learning on Riemannian Manifolds with "
        "Differential Privacy. arXiv 2404.10029.",
        claim="Noise in the tangent space gives differential privacy to federated learning on curved spaces.",
        parameters=_sizes(
            quick={
                "samples": 3000,
                "agents": 10,
                "rounds": 10,
                "repetitions": 2,
                "draws": 20_000,
                "triangles": 2_000,
            },
            paper={"repetitions": 10, "rounds": 200},
        ),
    ),
    Chapter(
        number=4,
        slug="dp2_fedsam",
        title="DP2-FedSAM: flat minima and personal heads under privacy noise",
        citation="Z. Zhang, Y. Guo, Y. Gong. DP2-FedSAM: Enhancing Differentially Private Federated Learning Through "
        "Personalized Sharpness-Aware Minimization. 2024, arXiv 2409.13645.",
        claim="Sharing only the body and seeking flat minima loses less accuracy to clipping and noise.",
        parameters=_sizes(
            quick={"rounds": 4, "repetitions": 2, "audit_runs": 100, "federations": 300},
            paper={"repetitions": 10, "audit_runs": 10_000},
        ),
    ),
    Chapter(
        number=5,
        slug="cvfl",
        title="C-VFL: compressed learning from vertically split data",
        citation="T. Castiglia, A. Das, S. Wang, S. Patterson. Compressed-VFL: Communication-Efficient Learning with "
        "Vertically Partitioned Data. ICML 2022, arXiv 2206.08330.",
        claim="Parties that hold different features may compress what they exchange and still converge.",
        parameters=_sizes(
            quick={"rounds": 10, "repetitions": 2, "draws": 20_000, "descent_rounds": 150},
            paper={"rounds": 300, "repetitions": 10},
        ),
    ),
)


def chapter(key: int | str) -> Chapter:
    """The chapter with that number, slug (``fedsc``), name (``01_fedsc``) or file name.

    Raises: TypeError, ValueError (no such chapter; the message lists them).
    """
    allowed = "a chapter: " + ", ".join(c.name for c in CHAPTERS)
    if isinstance(key, bool) or not isinstance(key, (int, str)):
        raise wrong(TypeError, "chapter", key, allowed)
    for one in CHAPTERS:
        names = {one.slug, one.name, one.file, str(one.number), f"{one.number:02d}"}
        if str(key) in names:
            return one
    raise wrong(ValueError, "chapter", key, allowed)


def notebook_path(path: str | Path) -> Path:
    """``path`` resolved, if a file is there. Raises: TypeError, FileNotFoundError."""
    if not isinstance(path, (str, Path)):
        raise wrong(TypeError, "path", path, "the path of a notebook")
    found = Path(path).resolve()
    if not found.is_file():
        raise wrong(FileNotFoundError, "path", str(path), "a notebook that exists")
    return found


def notebooks_folder(root: str | Path | None = None) -> Path:
    """The folder with the chapters: ``root``, else the checkout's ``notebooks/``, else ``./notebooks``.

    Raises: FileNotFoundError (says where it looked).
    """
    if root is not None:
        places = [Path(root)]
    else:
        places = [Path(__file__).resolve().parents[2] / "notebooks", Path.cwd() / "notebooks"]
    for place in places:
        if place.is_dir():
            return place
    looked = " and ".join(str(place) for place in places)
    raise FileNotFoundError(f"the chapters' folder was looked for in {looked}; run from a checkout of the book")
