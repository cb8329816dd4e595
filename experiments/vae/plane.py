"""What two latent dimensions allow: integrals by a grid, hence the free-energy identity, and the latent manifold.

Sources: Kingma and Welling (arXiv 1312.6114), equations 1 and 2 (log p(x) = KL(q || p(z|x)) + bound) and figure 4 (the
manifold: a unit square mapped through the inverse of the Gaussian's distribution function).

Letters: R replicas, B data points, K noise samples, G grid points, D pixels.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from experiments.measurement import Trained, measurement
from experiments.vae.bound import log_joint, lower_bound
from experiments.vae.hmc import ReplicaNoise
from experiments.vae.measure import absent
from experiments.vae.objective import Learner
from models.gaussian_vae import GaussianVAE, gaussian_log_density


@measurement("free_energy_gap", "free_energy", "posterior_gap")
def free_energy_identity(trained: Trained, pictures: int, samples: int, grid: int) -> dict[str, np.ndarray]:
    """How far F = E_q[-log p(x, z)] - H[q] is from -log p(x) + KL(q || p(z|x)), in nats, mean over test pictures.

    F is minus the bound's own estimator averaged over noise samples; the other side is integrated on a grid, which
    shares nothing with it but the networks. posterior_gap: the mean KL(q || p(z|x)). Two latent dimensions only,
    NaN for other runs.
    """
    learner: Learner = trained.objective
    if learner.model.latent_dim != 2 or learner.algorithm == "mcem":
        return absent(free_energy_identity, learner)
    model = learner.model.pick(learner.replicas_of(learner.chosen()))
    x = trained.data.test.x[:pictures].to(learner.device).expand(model.replicas, -1, -1)
    free_energy = sampled_free_energy(model, x, learner.seeds, samples)
    log_evidence, kl = grid_evidence_and_kl(model, x, grid)
    return {
        "free_energy_gap": (free_energy - (kl - log_evidence)).abs().mean(1).cpu().numpy(),
        "free_energy": free_energy.mean(1).cpu().numpy(),
        "posterior_gap": kl.mean(1).cpu().numpy(),
    }


@torch.no_grad()
def sampled_free_energy(model: GaussianVAE, x: Tensor, seeds: list[int], samples: int) -> Tensor:
    """Minus the bound's estimator, averaged over noise samples: x (R, B, D) -> (R, B)."""
    noise = ReplicaNoise(seeds, x.device)
    total = torch.zeros(x.shape[:-1], dtype=torch.float64, device=x.device)
    for _ in range(samples):
        total -= lower_bound(model, x, noise.normal(x.shape[1], model.latent_dim))
    return total / samples


@torch.no_grad()
def grid_evidence_and_kl(model: GaussianVAE, x: Tensor, grid: int, reach: float = 6.0) -> tuple[Tensor, Tensor]:
    """log p(x) and KL(q(z|x) || p(z|x)) by the rectangle rule on grid^2 points of [-reach, reach]^2: two of (R, B).

    Exact to rounding while the spacing 2 * reach / (grid - 1) is below the smallest deviation of q and the posterior.
    """
    axis = torch.linspace(-reach, reach, grid, device=x.device)
    z = torch.cartesian_prod(axis, axis).expand(model.replicas, 1, -1, -1)  # (R, 1, G, 2)
    pieces = z.split(256, dim=2)  # (R, B, 256, D) is the largest tensor
    joint = torch.cat([log_joint(model, x[:, :, None], piece) for piece in pieces], 2).double()
    mean, log_variance = (value[:, :, None] for value in model.encode(x))
    log_q = torch.cat([gaussian_log_density(piece, mean, log_variance) for piece in pieces], 2).double()
    log_area = 2 * torch.log(axis[1] - axis[0]).double()
    log_evidence = torch.logsumexp(joint, 2) + log_area
    difference = log_q - joint + log_evidence[..., None]
    return log_evidence, (torch.exp(log_q + log_area) * difference).sum(2)


@measurement("manifold")
def latent_manifold(trained: Trained, side: int) -> dict[str, np.ndarray]:
    """Pictures E[x|z] on the unit square mapped through the Gaussian's inverse distribution function (figure 4).

    (seeds, side, side, D), row and column being the first and the second latent. Two latent dimensions
    only, NaN for other runs.
    """
    learner: Learner = trained.objective
    if learner.model.latent_dim != 2:
        return absent(latent_manifold, learner)
    model = learner.model.pick(learner.replicas_of(learner.chosen()))
    axis = torch.special.ndtri((torch.arange(side, device=learner.device) + 0.5) / side)
    z = torch.cartesian_prod(axis, axis).expand(model.replicas, -1, -1)
    with torch.no_grad():
        pictures = model.mean_picture(z)
    return {"manifold": pictures.unflatten(1, (side, side)).cpu().numpy()}
