"""Adagrad with a step size of its own for each replica, so that one fit tries a whole grid of step sizes.

The update is that of ``torch.optim.Adagrad`` (Duchi, Hazan and Singer, 2011), replica by replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


class ReplicaAdagrad(torch.optim.Optimizer):
    """Adagrad for parameters with a leading replica axis.

    step_sizes: one for each replica.
    weight_decay: added to the gradient before it is accumulated, as the gradient of ``weight_decay / 2 * |w|^2``.
    """

    def __init__(self, parameters: Iterable[Tensor], step_sizes: Sequence[float], weight_decay: float = 0.0,
                 eps: float = 1e-10):
        defaults = {"step_sizes": list(step_sizes), "weight_decay": weight_decay, "eps": eps}
        super().__init__(parameters, defaults)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["sum"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, closure=None):
        """One update of every replica; parameters without a gradient (an encoder that is not trained) stay."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: Tensor, group: dict) -> None:
        gradient = parameter.grad.add(parameter, alpha=group["weight_decay"])
        total = self.state[parameter]["sum"].addcmul_(gradient, gradient)
        step_size = parameter.new_tensor(group["step_sizes"]).view(-1, *[1] * (parameter.dim() - 1))
        parameter.sub_(gradient.mul_(step_size).div_(total.sqrt().add_(group["eps"])))
