"""Hamiltonian Monte Carlo over many independent targets at once, with a step size tuned for each replica.

Source: Kingma and Welling (arXiv 1312.6114), appendices D and E: the posterior p(z|x) of every data point is sampled
with the gradient of log p(z) + log p(x|z), the step size tuned to an acceptance of 90 %.

Letters: R replicas, B data points (independent chains), L latent dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

LogDensity = Callable[[Tensor], Tensor]  # (R, B, L) -> (R, B)


def hamiltonian_step(log_density: LogDensity, z: Tensor, step_size: Tensor, momentum: Tensor, uniform: Tensor,
                     leapfrog_steps: int) -> tuple[Tensor, Tensor]:
    """One proposal of ``leapfrog_steps`` leapfrogs and its Metropolis test.

    z, momentum (R, B, L); step_size (R,); uniform (R, B) in [0, 1). Costs leapfrog_steps + 1 gradients. Returns the
    new state and the acceptance probability (R, B); a proposal with a value that is not finite is refused.
    """
    size = step_size.view(-1, 1, 1)
    before, gradient = _value_and_gradient(log_density, z)
    start_energy = 0.5 * momentum.square().sum(-1) - before
    proposal = z
    momentum = momentum + 0.5 * size * gradient
    for leapfrog in range(leapfrog_steps):
        proposal = proposal + size * momentum
        after, gradient = _value_and_gradient(log_density, proposal)
        momentum = momentum + (0.5 if leapfrog == leapfrog_steps - 1 else 1.0) * size * gradient
    end_energy = 0.5 * momentum.square().sum(-1) - after
    acceptance = torch.exp((start_energy - end_energy).clamp(max=0)).nan_to_num(0.0)
    return torch.where((uniform < acceptance)[..., None], proposal, z), acceptance


def _value_and_gradient(log_density: LogDensity, z: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        value = log_density(z)
        (gradient,) = torch.autograd.grad(value.sum(), z)
    return value.detach(), gradient


def tuned(step_size: Tensor, acceptance: Tensor, target: float, speed: float = 1.0) -> Tensor:
    """The step size (R,) moved towards the target by the mean acceptance of a replica's chains (R, B)."""
    return step_size * torch.exp(speed * (acceptance.mean(1) - target))


class ReplicaNoise:
    """Random numbers for R replicas, each from a generator of its own, so that they do not depend on the company.

    seeds: one for each replica; equal seeds give equal numbers.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu"):
        self.device = device
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers (R, *shape)."""
        return torch.stack([torch.randn(shape, generator=each, device=self.device) for each in self.generators])

    def uniform(self, *shape: int) -> Tensor:
        """Numbers in [0, 1): (R, *shape)."""
        return torch.stack([torch.rand(shape, generator=each, device=self.device) for each in self.generators])


def run_chains(log_density: LogDensity, z: Tensor, step_size: Tensor, noise: ReplicaNoise, samples: int,
               leapfrog_steps: int, tune_to: float | None = None) -> tuple[Tensor, Tensor]:
    """Draw ``samples`` successive states of every chain.

    z (R, B, L) is the start. Returns the draws (samples, R, B, L) and the step size, tuned on the way if ``tune_to``
    gives an acceptance (draws made while tuning are for burn-in only).
    """
    draws = []
    for _ in range(samples):
        momentum, uniform = noise.normal(*z.shape[1:]), noise.uniform(z.shape[1])
        z, acceptance = hamiltonian_step(log_density, z, step_size, momentum, uniform, leapfrog_steps)
        if tune_to is not None:
            step_size = tuned(step_size, acceptance, tune_to)
        draws.append(z)
    return torch.stack(draws), step_size
