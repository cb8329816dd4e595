"""The marginal likelihood and the free-energy identity against integrals written another way."""

import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss

from experiments.vae.bound import log_joint
from experiments.vae.marginal import log_marginal_likelihood
from experiments.vae.plane import grid_evidence_and_kl, sampled_free_energy
from models.gaussian_vae import GaussianVAE

LOG_TWO_PI = 1.8378770664093453


def make(latent=2, replicas=2, likelihood="bernoulli"):
    return GaussianVAE(16, latent, 10, likelihood=likelihood, init_sd=0.3, seeds=list(range(replicas)))


def pictures(count=6):
    return torch.rand(count, 16, generator=torch.Generator().manual_seed(3)).round()


def prior_rule(order=80):
    """Points (order^2, 2) and log weights (order^2,) of Gauss and Hermite's rule for the standard normal."""
    points, weights = (torch.as_tensor(value) for value in hermegauss(order))
    return torch.cartesian_prod(points, points), torch.cartesian_prod(weights, weights).prod(1).log() - LOG_TWO_PI


def evidence_by_hermite(model, x):
    """log p(x), (R, B), as the mean of p(x|z) over the prior."""
    z, log_weight = prior_rule()
    model = model.double()
    likelihood = model.log_likelihood(x.double()[None, :, None], z.expand(model.replicas, 1, -1, -1))
    return torch.logsumexp(likelihood + log_weight, -1)


def divergence_by_hermite(model, x):
    """KL(q(z|x) || p(z|x)), (R, B), as the mean of log q - log p(x, z) over q, plus log p(x)."""
    noise, log_weight = prior_rule()
    x = x.double()[None, :, None].expand(model.replicas, -1, -1, -1)
    mean, log_variance = model.double().encode(x)
    q = torch.distributions.Normal(mean, torch.exp(0.5 * log_variance))
    z = mean + q.scale * noise
    difference = q.log_prob(z).sum(-1) - log_joint(model, x, z)
    return (log_weight.exp() * difference).sum(-1) + evidence_by_hermite(model, x[0, :, 0])


def test_estimate_is_near_the_integral():
    estimate = log_marginal_likelihood(make(), pictures(), seeds=[0, 1], samples=300)
    expected = evidence_by_hermite(make(), pictures())
    torch.testing.assert_close(estimate.double(), expected, atol=0.15, rtol=0)
    assert abs((estimate - expected).mean().item()) < 0.05


def test_grid_gives_the_evidence_and_the_divergence():
    model, x = make(), pictures()
    evidence, divergence = grid_evidence_and_kl(model, x.expand(2, -1, -1), grid=241, reach=12)
    torch.testing.assert_close(evidence, evidence_by_hermite(make(), x), atol=1e-4, rtol=0)
    torch.testing.assert_close(divergence, divergence_by_hermite(make(), x), atol=1e-3, rtol=0)


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_sampled_free_energy_is_minus_evidence_plus_divergence(likelihood):
    model, x = make(likelihood=likelihood), pictures().expand(2, -1, -1)
    free_energy = sampled_free_energy(model, x, [0, 1], samples=4000)
    evidence, divergence = grid_evidence_and_kl(model, x, grid=241, reach=12)
    assert (free_energy - (divergence - evidence)).abs().mean().item() < 0.1
    assert divergence.min().item() > 0


def test_estimate_of_a_replica_does_not_depend_on_the_others():
    together = log_marginal_likelihood(make(), pictures(), seeds=[0, 1], samples=10, burn_in=5)
    alone = log_marginal_likelihood(make().pick([1]), pictures(), seeds=[1], samples=10, burn_in=5)
    torch.testing.assert_close(together[1], alone[0], atol=1e-3, rtol=0)


def test_five_latent_dimensions_are_refused():
    with pytest.raises(ValueError, match=r"above 4.*latent_dim is 5"):
        log_marginal_likelihood(make(latent=5), pictures(), seeds=[0, 1])
