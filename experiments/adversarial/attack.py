"""The smallest change of an image that gives it another label, by penalty and bisection; and the fast gradient sign.

For an image x and a target label l the paper minimises ``c * |r|^2 + cross_entropy(f(x + r), l)`` with x + r inside the
box [0, 1], and searches over c (Szegedy et al., section 4.1). The weight c stands before the size of r here, so the
smallest r belongs to the *largest* c whose minimiser still reaches l: the bisection keeps that one. The fast gradient
sign method is Goodfellow et al., arXiv 1412.6572, section 4. Any differentiable classifier will do.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from experiments.adversarial.lbfgs import Problem, Solver

TARGETS = ("runner_up", "random", "all")


@dataclass(frozen=True)
class Adversarial:
    """Changed images (B, ...) in float32, whether they have the wanted label (B,), their distortions (B,)."""

    images: Tensor
    found: Tensor
    distortion: Tensor


@dataclass(frozen=True)
class MinimalChange:
    """The paper's attack. box: pixels stay in [0, 1]; without it the change is smaller and the image may be invalid."""

    halvings: int = 10
    log10_c: tuple[float, float] = (-4.0, 4.0)
    target: str = "runner_up"
    box: bool = True
    solver: Solver = field(default_factory=Solver)

    def __call__(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Adversarial:
        """Attack correctly classified images (B, ...) with their labels (B,).

        With ``target: all`` every other label is tried and the smallest successful change is kept.
        Raises ValueError for an unknown kind of target.
        """
        targets = choose_targets(model, images, labels, self.target, generator)
        attempts = [self.towards(model, images, column) for column in targets.T]
        return _smallest(attempts)

    def towards(self, model: nn.Module, images: Tensor, targets: Tensor) -> Adversarial:
        """Change images (B, ...) until the model answers ``targets`` (B,); float64 inside, judged in float32."""
        single = _frozen(model, torch.float32)
        problem = Penalty(_frozen(model, torch.float64), images.double(), targets)
        low, high = (torch.full(targets.shape, end, dtype=torch.float64, device=images.device) for end in self.log10_c)
        bounds = (0.0, 1.0) if self.box else (-torch.inf, torch.inf)
        attempts = []
        for _ in range(self.halvings):
            middle = (low + high) / 2
            points = self.solver.minimise(problem.weighted(10**middle), problem.clean, *bounds)
            changed = points.view(images.shape).float()
            found = predict(single, changed) == targets
            low, high = torch.where(found, middle, low), torch.where(found, high, middle)
            attempts = [_smallest([*attempts, Adversarial(changed, found, distortion(images, changed))])]
        return attempts[0]


class Penalty:
    """``c |x' - x|^2 + cross_entropy(f(x'), target)`` and its gradient for each image of a batch."""

    def __init__(self, model: nn.Module, images: Tensor, targets: Tensor):
        self.model, self.shape, self.clean, self.targets = model, images.shape[1:], images.flatten(1), targets

    def weighted(self, c: Tensor) -> Problem:
        def evaluate(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            points = points.detach().requires_grad_()
            with torch.enable_grad():
                losses = cross_entropy(self.model(points.view(-1, *self.shape)), self.targets[rows], reduction="none")
            (gradient,) = torch.autograd.grad(losses.sum(), points)
            change = points.detach() - self.clean[rows]
            weight = c[rows]
            return losses.detach() + weight * (change * change).sum(1), gradient + 2 * weight[:, None] * change

        return evaluate


def choose_targets(model: nn.Module, images: Tensor, labels: Tensor, rule: str, generator: torch.Generator) -> Tensor:
    """Labels to aim at, (B, k): the likeliest wrong one, a random wrong one (k = 1), or all wrong ones (k = K - 1)."""
    if rule not in TARGETS:
        raise ValueError(f"target: {rule!r} is not one of {', '.join(TARGETS)}")
    with torch.no_grad():
        logits = _frozen(model, torch.float64)(images.double())
    if rule == "runner_up":
        return logits.scatter(1, labels[:, None], -torch.inf).argmax(1, keepdim=True)
    classes = logits.shape[1]
    every = (labels[:, None] + torch.arange(1, classes, device=labels.device)) % classes
    if rule == "all":
        return every
    pick = torch.randint(classes - 1, (len(labels), 1), generator=generator).to(labels.device)
    return every.gather(1, pick)


def fast_gradient_sign(
    model: nn.Module, images: Tensor, labels: Tensor, step: float = 0.002, steps: int = 500
) -> Adversarial:
    """The first of ``eps = step, 2 step, ..`` for which ``clamp(x + eps sign(gradient))`` loses its label.

    images: (B, ...) in [0, 1]; labels: (B,). An image that keeps its label at every eps is not found.
    """
    single = _frozen(model, torch.float32)
    points = images.double().requires_grad_()
    with torch.enable_grad():
        loss = cross_entropy(_frozen(model, torch.float64)(points), labels, reduction="sum")
    sign = torch.autograd.grad(loss, points)[0].sign().float()
    result, open_rows = images.float().clone(), torch.arange(len(labels), device=labels.device)
    for index in range(1, steps + 1):
        trial = (images[open_rows] + index * step * sign[open_rows]).clamp(0, 1).float()
        result[open_rows] = trial
        open_rows = open_rows[predict(single, trial) == labels[open_rows]]
        if not len(open_rows):
            break
    found = torch.ones_like(labels, dtype=torch.bool).index_fill(0, open_rows, False)
    return Adversarial(result, found, distortion(images, result))


def predict(model: nn.Module, images: Tensor) -> Tensor:
    """Labels (B,) that the model gives to images (B, ...)."""
    with torch.no_grad():
        return model(images).argmax(1)


def distortion(clean: Tensor, changed: Tensor) -> Tensor:
    """Root mean square of the change over the pixels of each image, the paper's measure (B,), in float64."""
    return (changed.double() - clean.double()).flatten(1).square().mean(1).sqrt()


def _smallest(attempts: list[Adversarial]) -> Adversarial:
    """For each image the successful attempt with the smallest distortion, the first attempt where none succeeded."""
    best = attempts[0]
    for other in attempts[1:]:
        better = other.found & (~best.found | (other.distortion < best.distortion))
        shaped = better.view(-1, *[1] * (best.images.ndim - 1))
        best = Adversarial(
            torch.where(shaped, other.images, best.images),
            best.found | other.found,
            torch.where(better, other.distortion, best.distortion),
        )
    return best


def _frozen(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    return copy.deepcopy(model).to(dtype).eval().requires_grad_(False)
