"""Measurements of the bound: its end, its curve, its spread, the step sizes, and how noisy two gradients are.

Source: Kingma and Welling (arXiv 1312.6114), section 5 and figure 2. Every value has the seeds as its leading axis.
A measurement that does not exist for a run (Monte Carlo EM has no encoder, so no bound) is NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from experiments.measurement import Trained, measurement
from experiments.vae.bound import kl_to_prior, lower_bound, mean_bound, standard_normal
from experiments.vae.objective import Learner
from models.gaussian_vae import GaussianVAE, gaussian_log_density

SPREAD, GRADIENT = 100, 101  # purposes of random numbers, beside those of the objective


def absent(function: Callable, learner: Learner) -> dict[str, np.ndarray]:
    """NaN for every metric that a measurement function declares: it does not exist for this run."""
    return dict.fromkeys(function.metric_names, np.full(len(learner.seeds), np.nan))


@measurement("elbo_train", "elbo_test", "chosen_rate", "step_sizes", "elbo_by_rate", "worst_gain", "curve_points",
             "curve_train", "curve_test", "area_test")
def bound_curve(trained: Trained) -> dict[str, np.ndarray]:
    """The bound (nats for each data point) at the step size chosen by the training bound early in the budget.

    elbo_by_rate: final test bound at every step size. worst_gain: the worst step size's final training bound minus the
    bound before training; negative when that step size diverged. area_test: the test bound averaged over log(points)
    from the first update recorded to the end.
    """
    learner: Learner = trained.objective
    if learner.algorithm == "mcem":
        return absent(bound_curve, learner)
    ends = learner.bounds(trained.data, learner.max_steps)
    train, test = (torch.cat([record, end[None]]).T.unflatten(0, (-1, learner.copies)).nan_to_num(nan=-np.inf)
                   for record, end in zip((learner.bound_train, learner.bound_test), ends, strict=True))
    choice = learner.chosen()
    rows = torch.arange(len(choice), device=choice.device)
    points = torch.cat([learner.recorded_points, learner.points[None]]).double()
    return {name: value.cpu().numpy() for name, value in {
        "elbo_train": train[rows, choice, -1],
        "elbo_test": test[rows, choice, -1],
        "chosen_rate": torch.tensor(learner.step_sizes, dtype=torch.float64)[choice.cpu()],
        "step_sizes": torch.tensor(learner.step_sizes, dtype=torch.float64).expand(len(choice), -1),
        "elbo_by_rate": test[..., -1],
        "worst_gain": (train[..., -1] - train[..., 0]).amin(1),
        "curve_points": points.expand(len(choice), -1),
        "curve_train": train[rows, choice],
        "curve_test": test[rows, choice],
        "area_test": _area(points[1:].log(), test[rows, choice, 1:]),
    }.items()}


def _area(x: Tensor, y: Tensor) -> Tensor:
    return torch.trapezoid(y, x, dim=-1) / (x[-1] - x[0])


@measurement("elbo_spread")
def bound_spread(trained: Trained, repeats: int) -> dict[str, np.ndarray]:
    """Standard deviation (nats) over repeated evaluations of the test bound with one sample for each picture."""
    learner: Learner = trained.objective
    if learner.algorithm == "mcem":
        return absent(bound_spread, learner)
    model = learner.model.pick(learner.replicas_of(learner.chosen()))
    pictures = trained.data.test.x[:learner.evaluated_pictures].to(learner.device)
    values = [
        mean_bound(model, pictures, standard_normal(learner.seeds, repeat, SPREAD, (len(pictures), model.latent_dim),
                                                    learner.device))
        for repeat in range(repeats)
    ]
    return {"elbo_spread": torch.stack(values).std(0).cpu().numpy()}


@measurement("gradients_per_point")
def cost(trained: Trained) -> dict[str, np.ndarray]:
    """Gradients of a network (encoder or decoder, each counts as one) spent on each training point evaluated.

    A count and not a time, so that a resumed run reports the same number.
    """
    learner: Learner = trained.objective
    return {"gradients_per_point": np.full(len(learner.seeds), float(learner.gradients) / float(learner.points))}


@measurement("gradient_variance_reparameterised", "gradient_variance_score", "gradient_variance_ratio")
def gradient_variance(trained: Trained, repeats: int, pictures: int) -> dict[str, np.ndarray]:
    """Total variance over the encoder's parameters of two one-sample estimators of the same gradient (section 2.2).

    Both estimate the gradient of the bound's mean over the first training pictures at the trained parameters: one
    through z = mean + deviation * noise, one as log p(x|z) times the gradient of log q(z|x).
    """
    learner: Learner = trained.objective
    if learner.algorithm != "aevb":
        return absent(gradient_variance, learner)
    model = learner.model.pick(learner.replicas_of(learner.chosen()))
    x = trained.data.train.x[:pictures].to(learner.device).expand(model.replicas, -1, -1)
    noises = [standard_normal(learner.seeds, repeat, GRADIENT, (x.shape[1], model.latent_dim), learner.device)
              for repeat in range(repeats)]
    variance = {kind: torch.stack([encoder_gradient(model, x, noise, kind) for noise in noises]).var(0).sum(1)
                for kind in ("reparameterised", "score")}
    values = {f"gradient_variance_{kind}": value for kind, value in variance.items()}
    values["gradient_variance_ratio"] = variance["score"] / variance["reparameterised"]
    return {name: value.cpu().numpy() for name, value in values.items()}


def encoder_gradient(model: GaussianVAE, x: Tensor, noise: Tensor, kind: str) -> Tensor:
    """One estimate of the gradient of the mean bound in the encoder's parameters: (R, parameters), float64.

    kind: ``reparameterised`` or ``score``; the KL term is in closed form in both. x (R, B, D), noise (R, B, L).
    """
    with torch.enable_grad():
        surrogate = lower_bound(model, x, noise) if kind == "reparameterised" else _score_surrogate(model, x, noise)
        gradients = torch.autograd.grad(surrogate.mean(1).sum(), list(model.encoder.parameters()))
    return torch.cat([gradient.flatten(1) for gradient in gradients], 1).double()


def _score_surrogate(model: GaussianVAE, x: Tensor, noise: Tensor) -> Tensor:
    mean, log_variance = model.encode(x)
    z = (mean + torch.exp(0.5 * log_variance) * noise).detach()
    reward = model.log_likelihood(x, z).detach()
    return reward * gaussian_log_density(z, mean, log_variance) - kl_to_prior(mean, log_variance)
