"""The notebooks of the book, in order: what they are called, where they lie, at which sizes they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedbook import shipped
from fedbook.arguments import one_of, wrong

PROFILES = ("quick", "standard", "paper")
KINDS = ("lesson", "results", "proofs")


def _sizes(**profiles: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """A read-only table profile -> parameters; a profile that is not given keeps the notebook's own values."""
    return MappingProxyType({name: MappingProxyType(dict(profiles.get(name, {}))) for name in PROFILES})


@dataclass(frozen=True)
class Chapter:
    """One notebook of a chapter: its lesson ``NN_slug``, its ``NN_slug_results`` or its ``NN_slug_proofs``.

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
    kind: str = "lesson"

    def also(self, kind: str, **profiles: Mapping[str, Any]) -> Chapter:
        """The chapter's notebook of another kind, e.g. ``FEDSC.also("results", quick={"rounds": 3})``."""
        return replace(self, kind=one_of("kind", kind, KINDS), parameters=_sizes(**profiles), budget_s=60.0)

    def all_kinds(self) -> tuple[Chapter, Chapter, Chapter]:
        """The lesson with its results and its proofs, which run as they are committed."""
        return self, self.also("results"), self.also("proofs")

    def plan(self) -> Chapter:
        """The teacher's plan of this lesson: a page, but no notebook and no entry of the contents."""
        return replace(self, kind="plan")

    @property
    def name(self) -> str:
        """Number, slug and kind, e.g. ``00_start_here`` or ``01_fedsc_results``: the file name without its ending."""
        if self.kind == "page":
            return self.slug
        return f"{self.number:02d}_{self.slug}" + ("" if self.kind == "lesson" else f"_{self.kind}")

    @property
    def file(self) -> str:
        """The file in the folder of notebooks, e.g. ``00_start_here.ipynb``; a plan is ``plans/00_start_here.md``."""
        texts = {"plan": f"plans/{self.number:02d}_{self.slug}.md", "page": f"{self.name}.md"}
        return texts.get(self.kind, f"{self.name}.ipynb")

    @property
    def page(self) -> str:
        """The file name of the rendered page, e.g. ``00_start_here.html``."""
        return f"{self.name}.html"

    def sizes(self, profile: str) -> dict[str, Any]:
        """The parameters of ``profile``. Raises: TypeError, ValueError."""
        return dict(self.parameters[one_of("profile", profile, PROFILES)])


FEDSC = Chapter(
    number=1,
    slug="fedsc",
    title="FedSC: spectral contrast across clients",
    citation="S. Jing, A. Yu, S. Zhang, S. Zhang. FedSC: Provable Federated Self-supervised Learning with Spectral "
    "Contrastive Objective over Non-i.i.d. Data. ICML 2024.",
    claim="Sharing one correlation matrix a client lets samples of different clients be contrasted.",
    parameters=_sizes(quick={"rounds": 3, "repetitions": 2, "draws": 300}),
)

HETERO_SSFL = Chapter(
    number=2,
    slug="hetero_ssfl",
    title="Hetero-SSFL: self-supervision with a different network at every client",
    citation="D. Makhija, N. Ho, J. Ghosh. Federated Self-supervised Learning for Heterogeneous Clients. 2022, "
    "arXiv 2205.12493.",
    claim="Aligning representations of one public set lets clients with different networks learn from each other.",
    parameters=_sizes(quick={"rounds": 2, "repetitions": 2, "agree_rounds": 1, "collapse_steps": 30}),
)

PRIRFED = Chapter(
    number=3,
    slug="prirfed",
    title="PriRFed: private federated learning on manifolds",
    citation="Z. Huang, W. Huang, P. Jawanpuria, B. Mishra. Federated Learning on Riemannian Manifolds with "
    "Differential Privacy. arXiv 2404.10029.",
    claim="Noise in the tangent space gives differential privacy to federated learning on curved spaces.",
    parameters=_sizes(quick={"rounds": 8, "repetitions": 2, "images": 1000, "draws": 20_000}),
)

DP2_FEDSAM = Chapter(
    number=4,
    slug="dp2_fedsam",
    title="DP2-FedSAM: flat minima and personal heads under privacy noise",
    citation="Z. Zhang, Y. Guo, Y. Gong. DP2-FedSAM: Enhancing Differentially Private Federated Learning Through "
    "Personalized Sharpness-Aware Minimization. 2024, arXiv 2409.13645.",
    claim="Sharing only the body and seeking flat minima loses less accuracy to clipping and noise.",
    parameters=_sizes(quick={"rounds": 6, "repetitions": 2, "draws": 20_000, "audit_runs": 200}),
)

CVFL = Chapter(
    number=5,
    slug="cvfl",
    title="C-VFL: compressed learning from vertically split data",
    citation="T. Castiglia, A. Das, S. Wang, S. Patterson. Compressed-VFL: Communication-Efficient Learning with "
    "Vertically Partitioned Data. ICML 2022, arXiv 2206.08330.",
    claim="Parties that hold different features may compress what they exchange and still converge.",
    parameters=_sizes(
        quick={"rounds": 10, "train_samples": 1500, "test_samples": 500, "repetitions": 2, "chains": 200},
    ),
)

CHOOSING = Chapter(
    number=6,
    slug="choosing",
    title="Choosing: which method, when?",
    citation="H. Xiao, K. Rasul, R. Vollgraf. Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning "
    "Algorithms. 2017, arXiv 1708.07747.",
    claim="On one task, four questions lead from what is wanted to a method, each answered by a figure.",
    parameters=_sizes(quick={"rounds": 10, "repetitions": 1, "audit_runs": 200}),
)

CHAPTERS: tuple[Chapter, ...] = (
    Chapter(
        number=0,
        slug="start_here",
        title="Start here: federated learning from nothing to FedAvg",
        citation="B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas. Communication-Efficient Learning of "
        "Deep Networks from Decentralized Data. AISTATS 2017, arXiv 1602.05629.",
        claim="Averaging the models of clients that train locally learns one shared model without moving their data.",
        parameters=_sizes(
            quick={"train_samples": 1000, "test_samples": 500, "clients": 10, "rounds": 5, "repetitions": 2},
            paper={"train_samples": 60_000, "test_samples": 10_000, "clients": 90, "rounds": 200},
        ),
    ),
    Chapter(
        number=0,
        slug="privacy",
        title="Differential privacy: from one noisy number to a federation",
        citation="C. Dwork, A. Roth. The Algorithmic Foundations of Differential Privacy. Foundations and Trends in "
        "Theoretical Computer Science 9, 2014.",
        claim="Noise scaled to what one person can change bounds what anybody can learn about that person.",
        parameters=_sizes(quick={"draws": 5000, "clients": 200, "rounds": 30, "repetitions": 2}),
    ),
    Chapter(
        number=0,
        slug="representations",
        title="Representations: what self-supervision learns, and how it is judged",
        citation="T. Chen, S. Kornblith, M. Norouzi, G. Hinton. A Simple Framework for Contrastive Learning of Visual "
        "Representations. ICML 2020, arXiv 2002.05709.",
        claim="Two views of one image train an encoder without labels; only fair bars show what it learned.",
        parameters=_sizes(quick={"steps": 36, "batch": 64, "repetitions": 2, "samples": 400}),
    ),
    FEDSC,
    FEDSC.also("results", quick={"live_rounds": 5, "live_seeds": 2}),
    FEDSC.also("proofs", quick={"draws": 1000, "descent_rounds": 20, "repetitions": 4}),
    HETERO_SSFL,
    HETERO_SSFL.also("results", quick={"live_seeds": 1}),
    HETERO_SSFL.also("proofs", quick={"rounds": 4, "products": 8}),
    PRIRFED,
    PRIRFED.also("results", quick={"live_seeds": 2, "live_rounds": 2, "gradient_steps": 30, "word_seeds": 2}),
    PRIRFED.also("proofs", quick={"draws": 20_000, "repetitions": 50, "rounds": 20}),
    DP2_FEDSAM,
    DP2_FEDSAM.also("results", quick={"live_seeds": 2, "live_rounds": 4, "draws": 8}),
    DP2_FEDSAM.also("proofs", quick={"draws": 50_000, "federations": 200, "repetitions": 20}),
    CVFL,
    CVFL.also("results", quick={"live_rounds": 50, "live_seeds": 1}),
    CVFL.also("proofs", quick={"draws": 20_000, "rounds": 300, "repetitions": 10}),
    CHOOSING,
)


MACHINES = Chapter(
    number=0, slug="machines", title="On real machines", citation="", kind="page",
    claim="The same rounds where data really lie apart, on Flower's deployment engine.",
)  # fmt: skip


def select(*keys: int | str) -> list[Chapter]:
    """In the book's order: a chapter's notebooks by number or slug (``1``, ``fedsc``), one by its name or file name.

    Raises: TypeError, ValueError (no such chapter; the message lists them).
    """
    chosen = set()
    for key in keys:
        names = {one.name for one in CHAPTERS if str(key) in (one.name, one.file)}
        names = names or {one.name for one in CHAPTERS if str(key) in (one.slug, str(one.number), f"{one.number:02d}")}
        if isinstance(key, bool) or not isinstance(key, (int, str)) or not names:
            kind = ValueError if isinstance(key, (int, str)) and not isinstance(key, bool) else TypeError
            raise wrong(kind, "chapter", key, "a chapter: " + ", ".join(one.name for one in CHAPTERS))
        chosen |= names
    return [one for one in CHAPTERS if one.name in chosen]


def navigation(name: str, chapters: Sequence[Chapter] = CHAPTERS) -> str:
    """Markdown for both ends of the notebook ``name``: lesson before, contents, the chapter's kinds, lesson after.

    Raises: ValueError (no such notebook).
    """
    here = next((one for one in chapters if one.name == name), None)
    if here is None:
        raise wrong(ValueError, "name", name, "one of " + ", ".join(one.name for one in chapters))
    kinds = [one for one in chapters if one.slug == here.slug]
    lessons = [one for one in chapters if one.kind == "lesson"]
    at = next(place for place, one in enumerate(lessons) if one.slug == here.slug)
    first = lessons[0]
    parts = [f"← [{one.number} {one.title}]({one.file})" for one in lessons[max(at - 1, 0) : at]]
    parts.append("**contents**" if here is first else f"[contents]({first.file})")
    if len(kinds) > 1:
        parts += [f"**{one.kind}**" if one is here else f"[{one.kind}]({one.file})" for one in kinds]
    parts += [f"[{one.number} {one.title}]({one.file}) →" for one in lessons[at + 1 : at + 2]]
    return " · ".join(parts)


def notebook_path(path: str | Path) -> Path:
    """``path`` resolved, if a file is there. Raises: TypeError, FileNotFoundError."""
    if not isinstance(path, (str, Path)):
        raise wrong(TypeError, "path", path, "the path of a notebook")
    resolved = Path(path).resolve()
    if not resolved.is_file():
        raise wrong(FileNotFoundError, "path", str(path), "a notebook that exists")
    return resolved


def notebooks_folder(root: str | Path | None = None) -> Path:
    """The folder with the chapters: ``root``, else the checkout's ``notebooks/``, ``./notebooks``, the wheel's copy.

    Raises: FileNotFoundError (says where it looked).
    """
    if root is not None:
        places = [Path(root)]
    else:
        places = [shipped.PACKAGE.parent / "notebooks", Path.cwd() / "notebooks", shipped.IN_WHEEL / "notebooks"]
    for place in places:
        if place.is_dir():
            return place
    looked = " and ".join(str(place) for place in places)
    raise FileNotFoundError(f"the chapters' folder was looked for in {looked}")
