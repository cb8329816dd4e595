"""Full-batch gradient descent of many seeds, kinds of model and learning rates at once, watched along the way.

Every learning rate is a multiple of 1 / lambda, lambda an eigenvalue of the tangent kernel of the initial weights, so
that a linear model under L = 1/2 sum_i (f(x_i) - y_i)^2 diverges above 2 (Zhu et al., arXiv 2205.11787, section 2).
The network and its linear and quadratic models see the same data, initial weights and learning rates. One training
step of the Trainer is a fixed number of descent steps; what is recorded on the way is held in buffers, so that a
resumed run ends with the same curves. A run whose loss passes ``divergence`` times its start is frozen there; the
bound is far above the spikes of runs that come back (hundreds to thousands, growing with the width).

Letters: S seeds, K kinds of model, C learning rates, n points, T training steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from lightning import LightningModule
from torch import Tensor

from models.ntk_net import TwoLayerNet
from models.taylor import TaylorModel

UNITS = ("top", "middle", "second")
CHUNK = 250  # test points evaluated at once, which bounds the memory


class Descent(torch.optim.Optimizer):
    """w -= rate * gradient with a rate (S, K, C) of its own for each copy; parameters have these leading axes."""

    def __init__(self, parameters, rates: Tensor):
        super().__init__(parameters, {})
        self.rates = rates

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for weights in group["params"]:
                rates = self.rates.view(*self.rates.shape, *[1] * (weights.dim() - self.rates.dim()))
                weights.addcmul_(rates, weights.grad, value=-1)


class GradientDescent(LightningModule):
    """Trains one copy of a model's seeds and kinds for each learning rate.

    rates: learning rates in units of 1 / lambda; lambda is the largest eigenvalue of the seed's kernel (``unit: top``),
    the second one (``second``), or their geometric mean (``middle``, whose 2 lies between the two critical rates).
    block: descent steps in one training step; steps: training steps T.
    trace: record the kernel along two directions after every training step too. divergence: see the module.
    Raises ValueError for an unknown unit.
    """

    def __init__(self, model: TwoLayerNet | TaylorModel, rates: Sequence[float], unit: str, block: int, steps: int,
                 trace: bool = False, divergence: float = 1e6):
        super().__init__()
        if unit not in UNITS:
            raise ValueError(f"arm.unit is {unit!r}; it must be one of {', '.join(UNITS)}")
        self.automatic_optimization = False
        self.model, self.unit, self.block, self.trace, self.divergence = model, unit, block, trace, divergence
        self.relative_rates = [float(rate) for rate in rates]
        model.expand(len(self.relative_rates))
        shape = tuple(next(model.parameters()).shape[:3])
        self._register("rates", *shape)
        self._register("eigenvalues", shape[0], 2)
        self._register("losses", *shape, steps * block)
        self._register("test_errors", *shape, steps + 1)
        self._register("kernel_values", *shape, steps + 1 if trace else 0, 2)
        self.register_buffer("alive", torch.ones(shape, dtype=torch.bool))
        self._features: list | None = None
        self._directions: Tensor | None = None

    def _register(self, name: str, *shape: int) -> None:
        self.register_buffer(name, torch.full(shape, torch.inf, dtype=torch.float64))

    def configure_optimizers(self) -> Descent:
        return Descent(list(self.model.parameters()), self.rates)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_index: int) -> None:
        """``block`` descent steps. batch: inputs (n, S, ...) and targets (n, S)."""
        x, y = (part.transpose(0, 1).contiguous() for part in batch)
        self._features = self._features or self.model.features(x)
        step = self.global_step
        if step == 0:
            self._choose_rates()
            self._record(0)
        for index in range(self.block):
            self._descend(y, step * self.block + index, last=index == self.block - 1)
        self._record(step + 1)

    def _choose_rates(self) -> None:
        spectrum = torch.linalg.eigvalsh(self.model.initial_kernel(self._features))
        self.eigenvalues.copy_(spectrum[:, -2:].flip(-1))
        relative = torch.tensor(self.relative_rates, dtype=torch.float64, device=self.device)
        self.rates.copy_((relative / self.unit_eigenvalue()[:, None])[:, None].expand_as(self.rates))

    def unit_eigenvalue(self) -> Tensor:
        """The eigenvalue that learning rates are given in, of each seed (S,)."""
        top, second = self.eigenvalues.unbind(-1)
        return {"top": top, "middle": (top * second).sqrt(), "second": second}[self.unit]

    def _descend(self, y: Tensor, index: int, last: bool) -> None:
        """One step. Lightning counts the last one of a block only."""
        losses = self.model.losses(self._features, y, self.alive)
        start = losses if index == 0 else self.losses[..., 0]
        self.alive &= losses <= self.divergence * start  # false for NaN
        self.losses[..., index] = torch.where(self.alive, losses, torch.inf)
        self.rates.mul_(self.alive)
        self.optimizers(use_pl_optimizer=last).step()

    @torch.no_grad()
    def _record(self, row: int) -> None:
        test = self.trainer.datamodule.test
        self.test_errors[..., row] = self.evaluate(test.x, test.y)[0]
        if self.trace:
            self.kernel_values[..., row, :] = self.along_directions(self._features)
        if row:
            self.log("lowest_loss", self.losses[..., row * self.block - 1].min().float())

    def along_directions(self, features: list) -> Tensor:
        """The kernels along the two top eigenvectors p of the initial one, p K p: (S, K, C, 2).

        At the start these are the two largest eigenvalues; unlike sorted ones they keep their names when they cross.
        features: the model's features of the training inputs.
        """
        if self._directions is None:
            self._directions = torch.linalg.eigh(self.model.initial_kernel(features))[1][..., -2:].flip(-1).mT
        return self.model.kernel_along(features, self._directions)

    @torch.no_grad()
    def evaluate(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Mean squared error and share of correct signs, both (S, K, C). x: (n, S, ...); y: (n, S)."""
        inputs, targets = x.to(self.device).transpose(0, 1), y.to(self.device).T[:, None, None]
        parts = inputs.split(CHUNK, dim=1)
        outputs = torch.cat([self.model.outputs(self.model.features(part)) for part in parts], dim=-1)
        return (outputs - targets).square().mean(-1), (outputs * targets > 0).double().mean(-1)
