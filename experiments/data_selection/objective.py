"""Training on selected subsets: many seeds, draws, shares and ridges in one fit.

One training step is one damped Newton iteration for all of them: a batch over data sets and ridges, in turn over
shares, on the full sample. The weights are the only state, so that a resumed fit goes on from them. The same objective,
with everything kept, trains the surrogate model on the pool of separate samples.
Source: Kolossov et al. (arXiv 2309.14563), section 2 and equation 6.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from lightning import LightningDataModule, LightningModule
from torch import Tensor

from experiments.data_selection.newton import Problem, kept_rows
from experiments.data_selection.selection import log_score, probabilities, tilted_directions, uniforms
from models.logistic_regressions import LogisticRegressions


class Subsampled(LightningModule):
    """Trains ``model`` (S, D, K, R, p) on samples kept by a surrogate's score.

    seed: the S seeds. kept: K shares. ridge: R ridges. hardness: exponent of the score. reweighted: weigh a kept sample
    by 1 / probability (unbiased) instead of 1. surrogate: its parts along and across the true direction, for data that
    have one; a surrogate trained by the previous phase takes its place.
    """

    def __init__(self, model: LogisticRegressions, seed: int | Sequence[int], kept: Sequence[float],
                 ridge: Sequence[float], hardness: float, reweighted: bool, surrogate: Sequence[float]):
        super().__init__()
        self.automatic_optimization = False
        self.model, self.hardness, self.reweighted = model, hardness, reweighted
        self.seeds = [seed] if isinstance(seed, int) else list(seed)
        self.kept, self.ridge = list(kept), list(ridge)
        self.surrogate = tuple(surrogate)
        sets = (*model.weight.shape[:2], model.weight.shape[-1])
        self.register_buffer("trained_surrogate", torch.full(sets, torch.nan, dtype=torch.float64))

    def inherit(self, previous: dict[str, Tensor]) -> None:
        """Take over the surrogate from a phase that trained one; a phase of theory leaves nothing to take over."""
        if "model.weight" in previous:
            self.trained_surrogate.copy_(previous["model.weight"][:, :, 0, 0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain descent of rate 1: the Newton step takes the gradient's place."""
        return torch.optim.SGD(self.model.parameters(), lr=1.0)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        """Full samples x (S, D, N, p) and y (S, D, N)."""
        x, y = (part.flatten(0, 1) for part in batch)
        theta, largest = self.model.weight.flatten(0, 1), []
        step = torch.empty_like(theta)
        chances = self.chances(self.trainer.datamodule).flatten(0, 1)
        for place, problem in self._problems(x, y, chances):
            step[:, place], gradient = problem.direction(theta[:, place])
            largest.append(gradient.abs().amax())
        self.log("gradient", torch.stack(largest).amax().float())
        optimizer = self.optimizers()
        self.model.weight.grad = -step.view_as(self.model.weight)
        optimizer.step()

    def chances(self, data: LightningDataModule) -> Tensor:
        """The probability of keeping each sample of the training split, (S, D, K, N)."""
        x = data.train.x.to(self.device)
        if self.hardness and min(self.kept) < 1:
            logits = torch.einsum("sdnp,sdp->sdn", x, self._directions(data).to(x))
        else:
            logits = x.new_zeros(x.shape[:3])
        scores = log_score(logits, self.hardness)
        return torch.stack([probabilities(scores, share) for share in self.kept], dim=2)

    def _directions(self, data: LightningDataModule) -> Tensor:
        if bool(self.trained_surrogate.isfinite().all()):
            return self.trained_surrogate
        if data.truth is None:
            raise ValueError("these data have no true direction: set arm.pool to the size of a pool to train a surrogate on")
        return tilted_directions(data.truth, *self.surrogate, self.seeds)

    def sample_weights(self, chances: Tensor) -> Tensor:
        """Loss weights (B, K, N), zero for the samples left out, from probabilities of the same shape."""
        draws = uniforms(self.seeds, self.model.weight.shape[1], chances.shape[-1]).to(chances).flatten(0, 1)
        weights = 1 / chances if self.reweighted else torch.ones_like(chances)
        return torch.where(draws[:, None] < chances, weights, 0)

    def _problems(self, x: Tensor, y: Tensor, chances: Tensor):
        weights = self.sample_weights(chances)
        ridges = torch.tensor(self.ridge, dtype=x.dtype, device=x.device)
        for place in range(len(self.kept)):
            yield place, Problem(*kept_rows(x, y, weights[:, place]), ridges, x.shape[1],
                                 single=not self.reweighted)

    @torch.no_grad()
    def residual(self, data: LightningDataModule) -> Tensor:
        """The largest entry of the objective's gradient at the weights, (S, D, K, R)."""
        x, y = (part.to(self.device).flatten(0, 1) for part in (data.train.x, data.train.y))
        theta = self.model.weight.flatten(0, 1)
        chances = self.chances(data).flatten(0, 1)
        rows = [problem.gradient(theta[:, place]).abs().amax(-1) for place, problem in self._problems(x, y, chances)]
        return torch.stack(rows, dim=1).view(self.model.weight.shape[:-1])
