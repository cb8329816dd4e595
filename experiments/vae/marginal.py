"""The marginal likelihood log p(x) of a decoder with few latent dimensions, by Hamiltonian Monte Carlo.

Source: Kingma and Welling (arXiv 1312.6114), appendix D: draw samples of the posterior p(z|x), fit a density q(z) to
them, and average q(z) / (p(z) p(x|z)) over fresh posterior samples; the average estimates 1 / p(x). The encoder is not
used, so decoders trained by any algorithm are compared alike. Above four dimensions the estimator is unreliable, and
it is refused.

Letters: R replicas, B data points, K samples of a chain, L latent dimensions, D pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from experiments.measurement import Trained, measurement
from experiments.vae.bound import log_joint
from experiments.vae.hmc import LogDensity, ReplicaNoise, run_chains
from experiments.vae.measure import absent
from experiments.vae.objective import Learner
from models.gaussian_vae import GaussianVAE

MOST_DIMENSIONS = 4


@measurement("log_likelihood_train", "log_likelihood_test", "marginal_rate", "marginal_points", "marginal_train",
             "marginal_test")
def marginal_curve(trained: Trained, pictures: int, samples: int, burn_in: int) -> dict[str, np.ndarray]:
    """Estimated log p(x) (nats for each data point) along training, at the end and at the decoders kept on the way.

    The step size is the one with the best estimate on training pictures at the selection step, for every algorithm:
    Monte Carlo EM has no bound to choose by. pictures: the first so many training and test pictures; samples and
    burn_in: see ``log_marginal_likelihood``. NaN for a run that kept no decoders.
    """
    learner: Learner = trained.objective
    if not learner.snapshot_steps:
        return absent(marginal_curve, learner)

    steps = [*learner.snapshot_steps, learner.max_steps]
    train, test = (split.x[:pictures].to(learner.device) for split in (trained.data.train, trained.data.test))
    everyone = torch.arange(learner.model.replicas, device=learner.device)
    early = learner.decoders_after([learner.selection_step], everyone)
    seeds = np.repeat(learner.seeds, learner.copies).tolist()
    fits = log_marginal_likelihood(early, train, seeds, samples, burn_in).nan_to_num(-torch.inf).mean(1)
    choice = fits.view(-1, learner.copies).argmax(1)
    models = learner.decoders_after(steps, learner.replicas_of(choice))
    values = log_marginal_likelihood(models, torch.cat([train, test]), learner.seeds * len(steps), samples, burn_in)
    curves = (part.mean(1).view(len(steps), -1).T.cpu().numpy() for part in values.split([len(train), len(test)], 1))
    return _as_measurements(*curves, np.array(steps) / learner.max_steps * float(learner.points),
                            np.array(learner.step_sizes)[choice.cpu().numpy()])


def _as_measurements(train: np.ndarray, test: np.ndarray, points: np.ndarray, rate: np.ndarray) -> dict:
    return {
        "log_likelihood_train": train[:, -1],
        "log_likelihood_test": test[:, -1],
        "marginal_rate": rate,
        "marginal_points": np.tile(points, (len(rate), 1)),
        "marginal_train": train,
        "marginal_test": test,
    }


def log_marginal_likelihood(model: GaussianVAE, pictures: Tensor, seeds: Sequence[int], samples: int = 50,
                            burn_in: int = 50, leapfrog_steps: int = 4, acceptance: float = 0.9) -> Tensor:
    """Estimate log p(x) in nats: pictures (B, D) -> (R, B).

    seeds: of the random numbers of each replica. samples: K for the fit and K more for the average. burn_in:
    transitions before, which tune the step size to the acceptance.
    Raises ValueError when the model has more than four latent dimensions.
    """
    if model.latent_dim > MOST_DIMENSIONS:
        raise ValueError(f"the marginal likelihood estimator is unreliable above {MOST_DIMENSIONS} latent dimensions; "
                         f"model.latent_dim is {model.latent_dim}")
    noise = ReplicaNoise(seeds, pictures.device)
    x = pictures.expand(model.replicas, -1, -1)

    def density(z: Tensor) -> Tensor:
        return log_joint(model, x, z)

    z = _likely_prior_draws(model, x, noise)
    step_size = torch.full((model.replicas,), 0.1, device=x.device)
    warm, step_size = run_chains(density, z, step_size, noise, burn_in, leapfrog_steps, acceptance)
    draws, _ = run_chains(density, warm[-1], step_size, noise, 2 * samples, leapfrog_steps)
    q = _fit_gaussian(draws[:samples])
    return _harmonic_estimate(density, q, draws[samples:])


@torch.no_grad()
def _likely_prior_draws(model: GaussianVAE, x: Tensor, noise: ReplicaNoise, tries: int = 100) -> Tensor:
    """For each data point one of ``tries`` prior draws, chosen in proportion to its likelihood: (R, B, L).

    Without it chains start far from the posterior's mass, in places that a short burn-in does not leave.
    """
    best = x.new_full(x.shape[:-1], -torch.inf)
    z = x.new_zeros(*x.shape[:-1], model.latent_dim)
    for _ in range(tries):
        candidate = noise.normal(*z.shape[1:])
        gumbel = -torch.log(-torch.log(noise.uniform(x.shape[1]).clamp_min(1e-12)))
        score = model.log_likelihood(x, candidate) + gumbel  # whose argmax is a draw in proportion to the likelihood
        z = torch.where((score > best)[..., None], candidate, z)
        best = torch.maximum(best, score)
    return z


def _fit_gaussian(draws: Tensor) -> torch.distributions.MultivariateNormal:
    """The Gaussian with the draws' mean and covariance: draws (K, R, B, L) -> batch (R, B), event (L,)."""
    mean = draws.mean(0)
    centred = (draws - mean).nan_to_num()
    covariance = torch.einsum("krbi,krbj->rbij", centred, centred) / (len(draws) - 1)
    floor = 1e-6 * torch.eye(draws.shape[-1], device=draws.device)  # chains that never moved have no spread
    return torch.distributions.MultivariateNormal(mean, covariance + floor)


@torch.no_grad()
def _harmonic_estimate(density: LogDensity, q: torch.distributions.MultivariateNormal, draws: Tensor) -> Tensor:
    ratios = torch.stack([q.log_prob(z) - density(z) for z in draws])
    return math.log(len(draws)) - torch.logsumexp(ratios, 0)
