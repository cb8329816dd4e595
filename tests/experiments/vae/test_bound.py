"""The lower bound and both algorithms' gradients against closed forms, quadrature and separately written losses."""

import numpy as np
import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss

from experiments.vae.bound import (
    aevb_loss,
    kl_to_prior,
    log_joint,
    lower_bound,
    mean_bound,
    standard_normal,
    wake_sleep_loss,
)
from experiments.vae.measure import encoder_gradient
from models.gaussian_vae import GaussianVAE


def make(latent=2, seeds=(0,), likelihood="bernoulli"):
    return GaussianVAE(6, latent, 8, likelihood=likelihood, init_sd=0.4, seeds=seeds).double()


def pictures(count=5, replicas=1):
    return torch.rand(count, 6, generator=torch.Generator().manual_seed(2)).round().double().expand(replicas, -1, -1)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_kl_is_that_of_torch_distributions():
    mean, log_variance = normal(2, 3, 4)
    q = torch.distributions.Normal(mean, torch.exp(0.5 * log_variance))
    expected = torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 1.0)).sum(-1)
    torch.testing.assert_close(kl_to_prior(mean, log_variance), expected)


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("latent", [1, 2])
def test_bound_averaged_over_noise_is_the_quadrature_of_log_joint_minus_log_q(latent, likelihood):
    model, x = make(latent, likelihood=likelihood), pictures()
    points, weights = (torch.as_tensor(value) for value in hermegauss(40))
    noise = torch.cartesian_prod(*[points] * latent).view(-1, 1, latent)
    weight = torch.cartesian_prod(*[weights / weights.sum()] * latent).view(-1, latent).prod(1)
    mean, log_variance = model.encode(x)
    z = mean + torch.exp(0.5 * log_variance) * noise
    q = torch.distributions.Normal(mean, torch.exp(0.5 * log_variance))
    integrand = torch.cat([log_joint(model, x, each[None]) - q.log_prob(each).sum(-1) for each in z])
    bounds = torch.cat([lower_bound(model, x, each.expand(1, 5, latent)) for each in noise])
    torch.testing.assert_close((weight[:, None] * bounds).sum(0), (weight[:, None] * integrand).sum(0))


def test_aevb_gradient_is_that_of_finite_differences():
    model, x, noise = make(), pictures(), normal(1, 5, 2)
    aevb_loss(model, x, noise).backward()
    weight = model.encoder.hidden.weight
    with torch.no_grad():
        losses = []
        for shift in (1e-6, -2e-6):
            weight[0, 1, 3] += shift
            losses.append(aevb_loss(model, x, noise))
    assert weight.grad[0, 1, 3].item() == pytest.approx(((losses[0] - losses[1]) / 2e-6).item(), rel=1e-5)


def test_wake_sleep_gradients_are_those_of_the_two_losses_apart():
    model, x = make(), pictures()
    noise, z_dream, dream_noise = normal(1, 5, 2), normal(1, 5, 2, seed=1), normal(1, 5, 6, seed=2)
    wake_sleep_loss(model, x, noise, z_dream, dream_noise).backward()

    mean, log_variance = model.encode(x)
    z = torch.distributions.Normal(mean, (0.5 * log_variance).exp()).mean + (0.5 * log_variance).exp() * noise
    probabilities = model.mean_picture(z.detach())
    wake = torch.nn.functional.binary_cross_entropy(probabilities, x, reduction="none").sum(-1).mean()
    dream = (torch.distributions.Normal(0.0, 1.0).cdf(dream_noise) < model.mean_picture(z_dream)).double()
    mean, log_variance = model.encode(dream)
    sleep = -torch.distributions.Normal(mean, (0.5 * log_variance).exp()).log_prob(z_dream).sum(-1).mean()
    for network, loss in ((model.decoder, wake), (model.encoder, sleep)):
        expected = torch.autograd.grad(loss, list(network.parameters()))
        for parameter, gradient in zip(network.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)


def test_both_gradient_estimators_are_unbiased():
    model, x = make(latent=1), pictures(count=3)
    points, weights = (torch.as_tensor(value) for value in hermegauss(60))
    weights = weights / weights.sum()
    exact = sum(
        weight * encoder_gradient(model, x, point.expand(1, 3, 1), "reparameterised")
        for point, weight in zip(points, weights, strict=True)
    )
    by_score = sum(
        weight * encoder_gradient(model, x, point.expand(1, 3, 1), "score")
        for point, weight in zip(points, weights, strict=True)
    )
    torch.testing.assert_close(by_score, exact, rtol=1e-4, atol=1e-7)


def test_mean_bound_over_chunks_is_the_mean_over_pictures():
    model, x, noise = make(seeds=(0, 1)), pictures(7, 2), normal(2, 7, 2)
    expected = lower_bound(model, x, noise).mean(1)
    torch.testing.assert_close(mean_bound(model, x[0], noise, chunk=3), expected)


def test_random_numbers_of_a_seed_do_not_depend_on_the_other_seeds():
    together = standard_normal([4, 9], step=3, purpose=1, shape=(5, 2))
    assert torch.equal(together[1], standard_normal([9], step=3, purpose=1, shape=(5, 2))[0])
    others = [standard_normal([9], 4, 1, (5, 2)), standard_normal([9], 3, 2, (5, 2)), together[:1]]
    assert not any(torch.equal(together[1], other[0]) for other in others)


def test_random_numbers_are_standard_normal():
    values = standard_normal(range(20), step=0, purpose=0, shape=(5000,))
    assert np.allclose([values.mean(), values.var()], [0, 1], atol=0.02)
