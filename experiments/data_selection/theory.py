"""Theory lines through the Trainer: one training step is one share kept, for all ridges.

The shares go from 1 downwards and each solution is the start of the next. A solve that does not reach its residual is an
error there and then, so that no point of a line can be wrong unnoticed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from lightning import LightningModule
from torch import Tensor, nn

from data.gaussian_logistic import find_law
from experiments.data_selection.quadrature import Limit, misclassification
from experiments.data_selection.saddle import Equations


class Lines(LightningModule):
    """Solves for the limit's test error at each share and ridge; ``errors`` (R, M) over ``shares``.

    shares: M shares from 1 downwards; the phase needs as many training steps. ridge: R ridges. surrogate: its parts
    along and across the true direction. Other arguments: see Limit. Raises ValueError for shares in another order.
    """

    def __init__(self, model: nn.Module, shares: Sequence[float], ridge: Sequence[float], ratio: float, labels: str,
                 norm: float, hardness: float, reweighted: bool, surrogate: Sequence[float]):
        super().__init__()
        self.automatic_optimization = False
        self.shares, self.ridge = [float(share) for share in shares], list(ridge)
        if self.shares[:1] != [1.0] or sorted(set(self.shares), reverse=True) != self.shares:
            raise ValueError(f"objective.shares={self.shares}: give shares that fall from 1.0")
        self.limit = Limit(ratio, find_law(labels), norm, *surrogate, hardness, reweighted)
        self.unknowns = nn.Parameter(torch.zeros(len(self.ridge), 4, dtype=torch.float64), requires_grad=False)
        empty = torch.full((len(self.ridge), len(self.shares)), torch.nan, dtype=torch.float64)
        self.register_buffer("errors", empty)
        self.register_buffer("residuals", empty.clone())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """None is needed; it counts the steps."""
        return torch.optim.SGD(self.parameters(), lr=1.0)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        """Solve at the next share; the batch is empty."""
        place = self.global_step
        if place >= len(self.shares):
            raise ValueError(f"trainer.max_steps is {self.trainer.max_steps}: set it to the {len(self.shares)} shares")
        nodes = self.limit.nodes(self.shares[place])
        for row, ridge in enumerate(self.ridge):
            start = self.unknowns[row].cpu().numpy() if place else None
            found = Equations(self.limit, nodes, ridge).solve(start)
            self.unknowns.data[row] = torch.from_numpy(found.unknowns)
            cosine = torch.tensor(found.cosine, dtype=torch.float64)
            self.errors[row, place] = misclassification(self.limit.law, self.limit.norm, cosine)
            self.residuals[row, place] = max(found.residual, found.proximal)
        self.log("residual", self.residuals[:, place].max().float())
        self.optimizers().step()

    def at(self, share: float) -> tuple[np.ndarray, float, np.ndarray]:
        """The errors (R,) at a share, the next smaller share solved (or the same, at the end), and the errors there.

        Raises ValueError for a share that is not on the line or not solved.
        """
        places = [place for place, solved in enumerate(self.shares) if abs(solved - share) < 1e-9]
        if not places:
            raise ValueError(f"no theory for a kept share of {share:g}; the line has {self.shares}")
        after = min(places[0] + 1, len(self.shares) - 1)
        values = self.errors[:, [places[0], after]].cpu().numpy()
        if not np.isfinite(values).all():
            raise ValueError(f"the line ends before share {self.shares[after]:g}: it needs {len(self.shares)} steps")
        return values[:, 0], self.shares[after], values[:, 1]
