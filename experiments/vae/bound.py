"""The lower bound and the losses whose minima the algorithms seek, and the random numbers that they share.

Sources: Kingma and Welling (arXiv 1312.6114), equation 7 with the closed form of appendix B (SGVB-B), and the
wake-sleep algorithm of Hinton, Dayan, Frey and Neal (1995), with which the paper compares. Sums run over pixels and
latents, means over data points, so that every value is in nats for each data point.

Letters: R replicas, B data points, D visible and L latent dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from models.gaussian_vae import GaussianVAE, gaussian_log_density


def standard_normal(seeds: Sequence[int], step: int, purpose: int, shape: Sequence[int], device=None) -> Tensor:
    """Standard normal numbers (seeds, *shape) that depend on each (seed, step, purpose) alone.

    A resumed run and a run of fewer seeds therefore see the same numbers.
    """
    return torch.stack([
        torch.randn(*shape, generator=_generator(seed, step, purpose, device), device=device) for seed in seeds
    ])


def _generator(seed: int, step: int, purpose: int, device) -> torch.Generator:
    mixed = np.random.SeedSequence((seed, step, purpose)).generate_state(1, np.uint64)[0]
    return torch.Generator(device or "cpu").manual_seed(int(mixed >> np.uint64(1)))


def kl_to_prior(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, diag variance) || N(0, I)) in nats, summed over the last axis (appendix B)."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)


def log_joint(model: GaussianVAE, x: Tensor, z: Tensor) -> Tensor:
    """log p(x, z) = log p(z) + log p(x|z): x (R, ..., D) and z (R, ..., L) -> (R, ...)."""
    zero = torch.zeros_like(z)
    return gaussian_log_density(z, zero, zero) + model.log_likelihood(x, z)


def lower_bound(model: GaussianVAE, x: Tensor, noise: Tensor) -> Tensor:
    """The estimator SGVB-B with one sample: x (R, B, D), noise (R, B, L) -> (R, B), differentiable in both networks."""
    mean, log_variance = model.encode(x)
    z = mean + torch.exp(0.5 * log_variance) * noise
    return model.log_likelihood(x, z) - kl_to_prior(mean, log_variance)


def aevb_loss(model: GaussianVAE, x: Tensor, noise: Tensor) -> Tensor:
    """Minus the lower bound, mean over data points and sum over replicas."""
    return -lower_bound(model, x, noise).mean(1).sum()


def wake_sleep_loss(model: GaussianVAE, x: Tensor, noise: Tensor, z_dream: Tensor, dream_noise: Tensor) -> Tensor:
    """Wake: -log p(x|z) with z from the encoder. Sleep: -log q(z|x) with (z, x) dreamt by the decoder.

    No gradient flows through a sample, so the wake term trains the decoder and the sleep term the encoder.
    x (R, B, D), noise (R, B, L), z_dream (R, B, L) from the prior, dream_noise (R, B, D).
    """
    with torch.no_grad():
        mean, log_variance = model.encode(x)
        z = mean + torch.exp(0.5 * log_variance) * noise
        x_dream = model.dream(z_dream, dream_noise)
    wake = -model.log_likelihood(x, z)
    sleep = -gaussian_log_density(z_dream, *model.encode(x_dream))
    return (wake + sleep).mean(1).sum()


@torch.no_grad()
def mean_bound(model: GaussianVAE, pictures: Tensor, noise: Tensor, chunk: int = 500) -> Tensor:
    """The bound averaged over a set of pictures: pictures (N, D), noise (R, N, L) -> (R,)."""
    total = torch.zeros(model.replicas, dtype=torch.float64, device=pictures.device)
    for start in range(0, len(pictures), chunk):
        x = pictures[start:start + chunk].expand(model.replicas, -1, -1)
        total += lower_bound(model, x, noise[:, start:start + chunk]).double().sum(1)
    return total / len(pictures)
