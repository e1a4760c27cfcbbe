"""Chapter 2's exercises: three images, the loss, the mean kernel, a design."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedbook import data
from fedbook.lab.compare import short
from fedbook.lab.exercises import WrongAnswer, exercise
from fedbook.randomness import normal, stream

# --- 02-1, by hand: three images; client A, width 1, sends 0, -3, 0; B, width 2, sends (3, 4), (0, -2), (-3, 4)


def solution_three_images() -> list[float]:
    """Norms of A's and B's centred kernels, CKA of A and B, of A and the mean kernel, of A and B by (1) as printed.

    The centred columns are (1, -2, 1), and (3, 0, -3) and (2, -4, 2): kernels with the eigenvalues 6, and 18 and 24.
    """
    return [6.0, 30.0, 144 / (6 * 30), 90 / (6 * 306**0.5), 6**2 / (9 * (18**2 + 36**2) ** 0.5)]


@exercise(
    "02-1",
    solution=solution_three_images(),
    hints=("Centre first: take from each column its mean over the three images. Then multiply out A A^T and B B^T.",
           "CKA is the sum of products of the entries of two centred kernels, divided by both norms.",
           "The mean kernel is half of A's plus half of B's, as matrices; its centred form has the norm sqrt(306). "
           "As printed, (1) skips the centring: |B^T A|^2 / (|A^T A| |B^T B|), with |.| Frobenius norms.",),
    wrong_answers=(
        WrongAnswer("not centred", [9.0, 30.0, 0.8, 0.8575, 0.0994], "first number",
                    "That is the norm of A A^T as it is. Centre the column (0, -3, 0) first: its mean is -1."),
        WrongAnswer("of the column", [2.4495, 30.0, 0.8, 0.8575, 0.0994], "first number",
                    "That is the length of A's centred column; its kernel, the 3 x 3 matrix, has the square of it."),
        WrongAnswer("norm squared", [36.0, 900.0, 0.8, 0.8575, 0.0994], "first number",
                    "The Frobenius norm is the ROOT of the sum of the squared entries."),
        WrongAnswer("rows centred", [0.0, 30.0, 0.8, 0.8575, 0.0994], "first number",
                    "Centre over the images, down the column. A row of width 1 minus its own mean is 0."),
        WrongAnswer("B not centred", [6.0, 40.2492, 0.8, 0.8575, 0.0994], "second number",
                    "The second column of B, (4, -2, 4), has the mean 2: take it off before you multiply."),
        WrongAnswer("trace", [6.0, 42.0, 0.8, 0.8575, 0.0994], "second number",
                    "That is the trace, the sum of the eigenvalues 18 and 24. The norm is the root of their squares."),
        WrongAnswer("no norms", [6.0, 30.0, 144.0, 0.8575, 0.0994], "third number",
                    "That is the sum of products, 144. CKA divides it by both norms: it is a cosine of two kernels."),
        WrongAnswer("distance", [6.0, 30.0, 0.2, 0.8575, 0.0994], "third number",
                    "That is the distance 1 - CKA. The similarity is wanted."),
        WrongAnswer("numerator not squared", [6.0, 30.0, 0.0667, 0.8575, 0.0994], "third number",
                    "The numerator is |B^T A|^2 = 144, squared."),
        WrongAnswer("root", [6.0, 30.0, 0.8944, 0.8575, 0.0994], "third number", "There is no root left over CKA."),
        WrongAnswer("printed", [6.0, 30.0, 0.0994, 0.8575, 0.0994], "third number",
                    "That is (1) as printed, without centring. The third number is the centred one."),
        WrongAnswer("B's norm not centred", [6.0, 30.0, 0.5963, 0.8575, 0.0994], "third number",
                    "The numerator is right with one kernel centred, the norms are not: centre both."),
        WrongAnswer("A's norm not centred", [6.0, 30.0, 0.5333, 0.8575, 0.0994], "third number",
                    "The numerator is right; the norm of A's kernel is the uncentred one."),
        WrongAnswer("CKAs averaged", [6.0, 30.0, 0.8, 0.9, 0.0994], "fourth number",
                    "That is the mean of CKA(A, A) = 1 and CKA(A, B). In the mean KERNEL B counts five times A: its "
                    "norm is five times as large."),
        WrongAnswer("normalised first", [6.0, 30.0, 0.8, 0.9487, 0.0994], "fourth number",
                    "That is with every kernel divided by its norm before averaging: a good idea, not Algorithm 1."),
        WrongAnswer("without A", [6.0, 30.0, 0.8, 0.8, 0.0994], "fourth number",
                    "The sum runs over all clients, A itself too."),
        WrongAnswer("mean not centred", [6.0, 30.0, 0.8, 0.3087, 0.0994], "fourth number",
                    "Centre here too: the mean of the centred kernels is the centred mean kernel."),
        WrongAnswer("centred again", [6.0, 30.0, 0.8, 0.8575, 0.8], "fifth number",
                    "Nothing in (1) takes the means off. Put the numbers in as they are."),
        WrongAnswer("not squared", [6.0, 30.0, 0.8, 0.8575, 0.0166], "fifth number", "|B^T A| is squared in (1)."),
        WrongAnswer("traces", [6.0, 30.0, 0.8, 0.8575, 0.0741], "fifth number",
                    "Below stand the norms of A^T A and B^T B, 9 and sqrt(18^2 + 36^2), not |A|^2 and |B|^2."),
        WrongAnswer("one number", 0.8, "five numbers"),
    ),
)  # fmt: skip
def check_three_images(answer: Any) -> str | None:
    answer = answer.tolist() if isinstance(answer, Tensor) else answer
    numeric = isinstance(answer, (list, tuple)) and len(answer) == 5
    if not numeric or any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in answer):
        return f"It should be a list of five numbers; it is {short(answer)}."
    words = ("first number (norm of A's centred kernel)", "second number (norm of B's centred kernel)",
             "third number (CKA of A and B)", "fourth number (CKA of A and the mean kernel)",
             "fifth number (A and B by (1) as printed)")  # fmt: skip
    for place, given, right in zip(words, answer, solution_three_images(), strict=True):
        if not abs(given - right) < 1e-3:
            return f"The {place} is not {short(given)}."
    return None


# --- 02-2, code: the alignment loss of a client


def solution_alignment_loss(a: Tensor, mean_gram: Tensor) -> Tensor:
    a = a - a.mean(0)
    target = mean_gram.detach()
    target = target - target.mean(0) - target.mean(1, keepdim=True) + target.mean()
    gram = a @ a.mT
    return 1 - (gram * target).sum() / (gram.norm() * target.norm()).clamp(min=1e-12)


def _centred(k: Tensor) -> Tensor:
    return k - k.mean(0) - k.mean(1, keepdim=True) + k.mean()


def _loss(
    rows: Callable[[Tensor], Tensor] = lambda a: a - a.mean(0),
    kernel: Callable[[Tensor], Tensor] = _centred,
    size: Callable[[Tensor], Tensor] = lambda k: k.norm(),
    finish: Callable[[Tensor], Tensor] = lambda cka: 1 - cka,
    *, floor: float = 1e-12, stop: bool = True,
) -> Callable[[Tensor, Tensor], Tensor]:  # fmt: skip
    """The loss with one of its usual mistakes."""

    def answer(a: Tensor, mean_gram: Tensor) -> Tensor:
        a, target = rows(a), kernel(mean_gram.detach() if stop else mean_gram)
        gram = a @ a.mT
        return finish((gram * target).sum() / (size(gram) * size(target)).clamp(min=floor))

    return answer


def _in_place(a: Tensor, mean_gram: Tensor) -> Tensor:
    return solution_alignment_loss(a, mean_gram.sub_(mean_gram.mean(0)))


@exercise(
    "02-2",
    solution=solution_alignment_loss,
    hints=("Columns of A minus their means over the images; then the kernel A A^T is centred on both sides.",
           "The mean kernel may have an offset too: take off its row means and its column means, add its grand mean.",
           "CKA is the sum of products divided by both Frobenius norms. CKA is a similarity, a loss is to fall.",
           "`.detach()` the mean kernel; keep the denominator above 0 with `.clamp(min=1e-12)`.",),
    wrong_answers=(
        WrongAnswer("similarity", _loss(finish=lambda c: c), "case 1",
                    "CKA grows as kernels agree. Descending it drives the clients apart (so does (2) as printed)."),
        WrongAnswer("minus CKA", _loss(finish=lambda c: -c), "case 1",
                    "Right gradient, but a distance is 0 where the kernels agree: 1 - CKA."),
        WrongAnswer("squared distance", _loss(finish=lambda c: 2 - 2 * c), "case 1",
                    "That is |K/|K| - M/|M||^2 = 2 (1 - CKA): a true squared distance, twice what mu is relative to."),
        WrongAnswer("angle", _loss(finish=torch.acos), "case 1",
                    "The angle is a metric, but not this loss: its slope has no bound where kernels agree."),
        WrongAnswer("not squared", _loss(finish=lambda c: 1 - c.sqrt()), "case 1",
                    "There is no root over CKA: <K, M> is already |C^T A|^2, squared, for M = C C^T."),
        WrongAnswer("kernel not normalised", _loss(size=lambda k: k.new_ones(())), "case 1",
                    "Divide by BOTH norms: otherwise a client lowers its loss by making its representations longer."),
        WrongAnswer("HSIC", _loss(size=lambda k: k.new_tensor(len(k) - 1.0)), "case 1",
                    "That is 1 - HSIC. CKA divides HSIC(K, M) by the root of HSIC(K, K) HSIC(M, M)."),
        WrongAnswer("traces", _loss(size=lambda k: k.trace()), "case 1",
                    "A kernel's size is its Frobenius norm here; divided by traces, equal kernels would not give 0."),
        WrongAnswer("row means", _loss(lambda a: a - a.mean(1, keepdim=True)), "case 1",
                    "Take off the mean over the IMAGES (dimension 0), not over the entries of one representation."),
        WrongAnswer("own kernel not centred", _loss(lambda a: a), "case 2",
                    "An offset of the representations, which says nothing about the images, changes your loss: "
                    "centre A."),
        WrongAnswer("nothing centred", _loss(lambda a: a, lambda k: k), "case 2",
                    "That is (1) as printed: an offset alone makes two clients look alike or not. Centre both."),
        WrongAnswer("mean kernel not centred", _loss(kernel=lambda k: k), "case 2",
                    "The numerator is right, but the mean kernel's norm still counts its offset: centre it too."),
        WrongAnswer("one side", _loss(kernel=lambda k: k - k.mean(0)), "case 2",
                    "H M H has H on BOTH sides: take off the row means too, and add the grand mean."),
        WrongAnswer("A detached", _loss(lambda a: (a - a.mean(0)).detach()), "No gradient",
                    "The mean kernel is the constant here; A is what the client learns."),
        WrongAnswer("a float", lambda a, m: solution_alignment_loss(a, m).item(), "plain number",
                    "A number that left PyTorch carries no gradient: return the tensor."),
        WrongAnswer("norm detached", _loss(size=lambda k: k.detach().norm()), "gradient to A",
                    "The norm of A's kernel depends on A. Freeze it and the gradient pulls A to be longer."),
        WrongAnswer("through the mean", _loss(stop=False), "mean kernel",
                    "The mean kernel comes from the server and stands still in the local steps: detach it."),
        WrongAnswer("0 / 0", _loss(floor=0.0), "constant",
                    "Constant representations have the centred kernel 0, and 0 / 0 ends the training: keep the "
                    "denominator above 0. (CKA then counts as 0.)"),
        WrongAnswer("root of 0", _loss(size=lambda k: k.square().sum().sqrt()), "constant",
                    "sum().sqrt() has an infinite slope at 0, which times 0 is NaN; `.norm()` takes 0 there."),
        WrongAnswer("in place", _in_place, "changes"),
        WrongAnswer("per image", lambda a, m: 1 - (a @ a.mT * m).sum(1), "one number"),
        WrongAnswer("an error", lambda a, m: a.mT @ m @ m[:2], "RuntimeError"),
    ),
)  # fmt: skip
def check_alignment_loss(answer: Any) -> str | None:
    rng = stream(0, "alignment loss")
    a, others = normal((8, 3), rng), [normal((8, d), rng) for d in (2, 5)]
    a, others = a - a.mean(0), [other - other.mean(0) for other in others]
    shifted, target = a + normal((3,), rng) + 2, sum(other @ other.mT for other in others) / 2
    offset = sum((other + 1.5) @ (other + 1.5).mT for other in others) / 2
    cases = [("columns of A and mean kernel already centred", a, target), ("both with an offset", shifted, offset),
             ("width 1", shifted[:, :1], offset), ("A's kernel 9 times the mean kernel", 3 * others[1],
                                                  others[1] @ others[1].mT)]  # fmt: skip
    for case, (words, *given) in enumerate(cases, start=1):
        copies = [tensor.clone() for tensor in given]
        found, right = answer(*copies), float(solution_alignment_loss(*given))
        single = isinstance(found, Tensor) and found.numel() == 1 and not found.dtype.is_complex
        if isinstance(found, bool) or not (single or isinstance(found, (int, float))):
            return f"It should return one number; it returned {short(found)}."
        found = float(found.detach() if single else found)
        if not abs(found - right) <= 1e-5:
            return f"In case {case} ({words}) the loss should be {right:.4f}; it is {found:.4f}."
        if not all(torch.equal(x, y) for x, y in zip(copies, given, strict=True)):
            return "The result is right, but the function changes the tensors it was given."
    return _wrong_gradient(answer, shifted, offset)


def _wrong_gradient(answer: Callable, a: Tensor, mean_gram: Tensor) -> str | None:
    """The values are right: where the gradient goes, and that it is finite where the kernel vanishes."""
    a, mean_gram = a.clone().requires_grad_(), mean_gram.clone().requires_grad_()
    found = answer(a, mean_gram)
    if not isinstance(found, Tensor):
        return "The values are right. It returns a plain number, though, not a tensor: no gradient can reach A."
    if not found.requires_grad:
        return "The values are right. No gradient reaches A, though: the client would learn nothing from this loss."
    own, frozen = torch.autograd.grad(found.sum(), (a, mean_gram), allow_unused=True)
    if own is None:
        return "The values are right. No gradient reaches A, though: only the mean kernel would learn from this loss."
    (right,) = torch.autograd.grad(solution_alignment_loss(a, mean_gram), a)
    if not float((own - right).norm()) <= 1e-4 * float(right.norm()):
        return (f"The values are right. The gradient to A is not: it has the norm {float(own.norm()):.4f}, it should "
                f"have {float(right.norm()):.4f}.")  # fmt: skip
    if frozen is not None and float(frozen.abs().max()) > 0:
        return "Values and gradient to A are right. A gradient runs into the mean kernel too: it should be a constant."
    a = torch.full_like(a, 2).requires_grad_()
    found = torch.as_tensor(answer(a, mean_gram.detach()))
    slope = float(torch.autograd.grad(found.sum(), a)[0].abs().max()) if found.requires_grad else 0.0
    if not abs(float(found.detach()) - 1) <= 1e-6 or not slope <= 0.1:  # rounding over a small floor is no mistake
        return ("All is right but for constant representations, where the loss should be 1 with the gradient 0: it is "
                f"{float(found.detach()):.4g}, the largest entry of the gradient {slope:.4g}.")  # fmt: skip
    return None


# --- 02-3, code: the mean kernel of the OTHER clients, of whatever widths


def solution_reference_without(representations: Sequence[Tensor], weights: Sequence[float], client: int) -> Tensor:
    others = [j for j in range(len(weights)) if j != client]
    total = sum(weights[j] for j in others)
    return sum(weights[j] / total * representations[j] @ representations[j].mT for j in others)


def _others(
    total: Callable[[Sequence[float], int], float] = lambda w, i: sum(w) - w[i],
    kernel: Callable[[Tensor], Tensor] = lambda a: a @ a.mT,
    *, power: int = 1, itself: bool = False,
) -> Callable[..., Tensor]:  # fmt: skip
    """The mean with one of its usual mistakes."""

    def answer(a: Sequence[Tensor], w: Sequence[float], i: int) -> Tensor:
        kept = [j for j in range(len(w)) if itself or j != i]
        return sum((w[j] / total(w, i)) ** power * kernel(a[j]) for j in kept)

    return answer


def _mean_first(a: Sequence[Tensor], w: Sequence[float], i: int) -> Tensor:
    widest = max(x.shape[1] for x in a)
    padded = [torch.nn.functional.pad(x, (0, widest - x.shape[1])) for x in a]
    mean = sum(w[j] * padded[j] for j in range(len(w)) if j != i) / (sum(w) - w[i])
    return mean @ mean.mT


def _slipped(a: Sequence[Tensor], w: Sequence[float], i: int) -> Tensor:
    kept = [x for j, x in enumerate(a) if j != i]
    return sum(v * x @ x.mT for v, x in zip(w, kept, strict=False)) / sum(w[: len(kept)])


def _popped(a: list[Tensor], w: list[float], i: int) -> Tensor:
    a.pop(i), w.pop(i)
    return sum(v * x @ x.mT for v, x in zip(w, a, strict=True)) / sum(w)


@exercise(
    "02-3",
    solution=solution_reference_without,
    hints=("Widths differ, but A_j A_j^T is L x L for every client: only the kernels can be added.",
           "Leave the client out of the sum AND out of the sum of the weights.",
           "The weight stands before the kernel. In a factor [sqrt(w_1) A_1 | ...] it would stand under a root.",),
    wrong_answers=(
        WrongAnswer("representations averaged", _mean_first, "case 1",
                    "You average representations. Client 0 sends A, client 1 sends -A: the same kernel, but the mean "
                    "representation is 0. Average the kernels."),
        WrongAnswer("itself included", _others(lambda w, i: sum(w), itself=True), "case 1",
                    "That is the mean over all clients: a client is then pulled in part to where it already is."),
        WrongAnswer("left out of one sum only", _others(lambda w, i: sum(w)), "case 1",
                    "The weights left do not sum to 1 yet: divide by their sum. (CKA would not notice; a "
                    "norm, or a mixture with anything else, would.)"),
        WrongAnswer("itself in the kernels only", _others(itself=True), "case 1",
                    "The client's weight is out, but its kernel is still in the sum."),
        WrongAnswer("weights squared", _others(power=2), "case 1",
                    "The weight went onto the representation and is squared in its kernel; use its root there."),
        WrongAnswer("normalised kernels", _others(kernel=lambda a: a @ a.mT / (a @ a.mT).norm()), "case 1",
                    "Kernels of norm 1 keep loud clients from dominating, but asked are the kernels as they are."),
        WrongAnswer("centred kernels", _others(kernel=lambda a: _centred(a @ a.mT)), "case 1",
                    "The CKA centres the mean later, with the same result; asked are the kernels as they are."),
        WrongAnswer("alike", lambda a, w, i: _others()(a, [1.0] * len(w), i), "case 2",
                    "The clients have weights: divide by the sum of those left, not by their number."),
        WrongAnswer("slipped", _slipped, "case 2",
                    "The kernels after the client's meet the weight of their neighbour: leave out its weight too."),
        WrongAnswer("sum of one taken for granted", _others(lambda w, i: 1 - w[i]), "case 3",
                    "1 - w_i is the sum of the others' weights only where all weights sum to 1. Sum them."),
        WrongAnswer("d x d", lambda a, w, i: a[i].mT @ a[i], "shape",
                    "A^T A is width x width and says nothing about which images are alike; A A^T is L x L."),
        WrongAnswer("popped", _popped, "changes", "pop changes the caller's lists: the server needs them again."),
        WrongAnswer("an error", lambda a, w, i: torch.cat(a) @ a[i], "RuntimeError"),
    ),
)  # fmt: skip
def check_others_gram(answer: Any) -> str | None:
    rng = stream(0, "others' kernels")
    a = normal((4, 2), rng)
    mixed = [normal((4, d), rng) + 0.5 for d in (1, 3, 2, 6)]
    cases = [("three clients, equal weights, client 1 sends minus what client 0 sends", [a, -a, a.flip(1) + 1],
              [1 / 3] * 3, 2), ("widths 1, 3, 2, 6", mixed, [0.1, 0.4, 0.2, 0.3], 1),
             ("weights 2, 1, 0, 3", mixed, [2.0, 1.0, 0.0, 3.0], 0),
             ("two clients, the others' mean is the other", mixed[1:3], [0.9, 0.1], 0)]  # fmt: skip
    for case, (words, sent, weights, client) in enumerate(cases, start=1):
        given = [x.clone() for x in sent], list(weights)
        found, right = answer(*given, client), solution_reference_without(sent, weights, client)
        if not isinstance(found, Tensor) or found.shape != right.shape or not found.dtype.is_floating_point:
            what = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else short(found)
            return f"It should return a floating-point tensor of shape {tuple(right.shape)}; it returned {what}."
        off = (found - right).abs()
        if not float(off.max()) <= 1e-5:
            p, q = divmod(int(off.nan_to_num(torch.inf).argmax()), len(right))
            return (f"In case {case} ({words}; all but client {client}) entry ({p}, {q}) should be "
                    f"{float(right[p, q]):.4f}; it is {float(found[p, q]):.4f}.")  # fmt: skip
        same = given[1] == weights and len(given[0]) == len(sent)
        if not same or not all(torch.equal(x, y) for x, y in zip(given[0], sent, strict=True)):
            return "The result is right, but the function changes the lists it was given."
    return None


# --- 02-4, experiment, open: an alignment that can be reached, that means something, and that is cheap

CEILING, CHANCE, BUDGET = 0.95, 0.1, 3000
MESSAGES = ("representations", "kernel")


class Design(NamedTuple):
    """The most CKA a client can reach; the most that is left, on average, by chance; bytes a client sends up."""

    ceiling: float
    chance: float
    bytes: int


def alignment_design(width: int, images: int, message: str) -> Design:
    """What ``images`` alignment images and clients of ``width`` buy on digits; one ``message`` a round, float32.

    The digits' own kernel (all training images, pixels) stands in for the mean kernel: a client of width d reaches at
    most sqrt(sum of its d largest squared eigenvalues / sum of all). Chance: two clients whose rows are in unrelated
    order. Over all orders P the centred <K, P M P^T> has the mean tr K tr M / (L - 1), and tr K <= sqrt(d) |K|: the
    mean CKA is at most d / (L - 1), and just that for uncorrelated columns of equal variance, as batch normalisation
    tends to make them. A kernel is symmetric: L (L + 1) / 2 numbers.
    """
    squares = _digit_eigenvalues().square()
    rank = min(width, images - 1)
    numbers = {"representations": images * width, "kernel": images * (images + 1) // 2}
    return Design(float((squares[:width].sum() / squares.sum()).sqrt()), rank / (images - 1),
                  4 * numbers[message])  # fmt: skip


@lru_cache(maxsize=1)
def _digit_eigenvalues() -> Tensor:
    """Of the digits' centred kernel, largest first (the 64 that are not 0)."""
    x = data.load("digits").train_x.flatten(1).double()
    x = x - x.mean(0)
    return torch.linalg.eigvalsh(x.mT @ x).flip(0).clamp(min=0)


@exercise(
    "02-4",
    solution={"width": 7, "images": 72, "message": "representations"},
    hints=("Ceiling first: eigenvalues of the digits' centred kernel, squared, summed from the largest on. How many "
           "carry 0.95 squared of the sum?",
           "Chance: take two clients with uncorrelated columns of equal variance, shuffle the rows of one, some "
           "hundred times, for several numbers of images. How does the mean CKA go with width / images?",
           "Bytes: once chance is below 0.1, are L x d numbers or L (L + 1) / 2 fewer?",),
    wrong_answers=(
        WrongAnswer("narrow", {"width": 2, "images": 100, "message": "representations"}, "at most 0.735",
                    "A kernel of rank 2 cannot follow one in which more directions matter, however long it trains."),
        WrongAnswer("one short", {"width": 6, "images": 100, "message": "representations"}, "at most 0.943",
                    "Nearly. One more direction is needed."),
        WrongAnswer("wide", {"width": 64, "images": 100, "message": "representations"}, "0.646",
                    "Wide clients agree by chance: with 64 columns and 100 images two thirds of all CKA is bias."),
        WrongAnswer("few images", {"width": 7, "images": 40, "message": "representations"}, "0.179",
                    "Chance is about width / images: more images or a narrower client."),
        WrongAnswer("rank of all", {"width": 64, "images": 50, "message": "representations"}, "1.000",
                    "More columns than images: any two whitened clients have the same kernel."),
        WrongAnswer("the paper's images", {"width": 2048, "images": 5000, "message": "kernel"}, "0.41",
                    "Even 5,000 images are few for 2,048 columns, and a minibatch of 200 is all chance. A narrower "
                    "predictor, or the unbiased estimator."),
        WrongAnswer("kernels", {"width": 7, "images": 72, "message": "kernel"}, "10512 bytes",
                    "Chance below 0.1 means more than 10 images a column: then L x d is a fifth of L (L + 1) / 2."),
        WrongAnswer("many images", {"width": 7, "images": 200, "message": "representations"}, "5600 bytes",
                    "Good and calm, but more images than needed: bytes grow with them."),
        WrongAnswer("a little wide", {"width": 10, "images": 101, "message": "representations"}, "4040 bytes",
                    "Bytes grow with width times images, and images with width: with its square. Go narrower."),
        WrongAnswer("weights", {"width": 7, "images": 72, "message": "weights"}, "message"),
        WrongAnswer("no images", {"width": 7, "images": 0, "message": "kernel"}, "images"),
        WrongAnswer("half a column", {"width": 7.5, "images": 72, "message": "kernel"}, "width"),
        WrongAnswer("one missing", {"width": 7, "images": 72}, "width, images, message"),
        WrongAnswer("a text", "width 7", "dictionary"),
    ),
)  # fmt: skip
def check_design(answer: Any) -> str | None:
    wanted = ("width", "images", "message")
    if not isinstance(answer, dict) or set(answer) != set(wanted):
        return f"It should be a dictionary with {', '.join(wanted)}; it is {short(answer)}."
    for name, low in (("width", 1), ("images", 2)):
        value = answer[name]
        if isinstance(value, bool) or not isinstance(value, Integral) or not low <= value <= 10000:
            return f"{name} should be a whole number from {low} to 10000; it is {short(value)}."
    if not isinstance(answer["message"], str) or answer["message"] not in MESSAGES:
        return f"message should be {' or '.join(MESSAGES)}; it is {short(answer['message'])}."
    found = alignment_design(**answer)
    if found.ceiling < CEILING:
        return (f"A client of width {answer['width']} reaches a CKA of at most {found.ceiling:.3f} with the digits' "
                f"kernel; {CEILING} is wanted.")  # fmt: skip
    if found.chance > CHANCE + 0.005:  # a reader who measures it has a standard error
        return (f"The ceiling is {found.ceiling:.3f}, but by chance alone, rows in unrelated order, the mean CKA "
                f"can be {found.chance:.3f}; at most {CHANCE} is wanted.")  # fmt: skip
    if found.bytes > BUDGET:
        return (f"Ceiling {found.ceiling:.3f} and chance {found.chance:.3f} are good, but a client sends "
                f"{found.bytes} bytes a round; at most {BUDGET} are wanted.")  # fmt: skip
    return None
