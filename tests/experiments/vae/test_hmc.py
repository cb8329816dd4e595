"""Hamiltonian Monte Carlo on a Gaussian whose moments are known, and its parts on their own."""

import pytest
import torch

from experiments.vae.hmc import ReplicaNoise, hamiltonian_step, run_chains, tuned

MEAN = torch.tensor([1.0, -2.0])
COVARIANCE = torch.tensor([[1.0, 0.8], [0.8, 2.0]])


def correlated(z):
    return torch.distributions.MultivariateNormal(MEAN, COVARIANCE).log_prob(z)


def test_moments_of_a_correlated_gaussian_at_an_acceptance_of_nine_tenths():
    z, step_size, noise = torch.zeros(1, 400, 2), torch.tensor([0.01]), ReplicaNoise([0])
    warm, step_size = run_chains(correlated, z, step_size, noise, 60, 4, tune_to=0.9)
    draws, _ = run_chains(correlated, warm[-1], step_size, noise, 60, 4)
    sample = draws.reshape(-1, 2)
    torch.testing.assert_close(sample.mean(0), MEAN, atol=0.06, rtol=0)
    torch.testing.assert_close(sample.T.cov(), COVARIANCE, atol=0.12, rtol=0)
    _, acceptance = hamiltonian_step(correlated, draws[-1], step_size, noise.normal(400, 2), noise.uniform(400), 4)
    assert acceptance.mean().item() == pytest.approx(0.9, abs=0.04)


def test_energy_error_falls_with_the_square_of_the_step_size():
    z, momentum = torch.randn(2, 1, 50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.distributions.MultivariateNormal(MEAN.double(), COVARIANCE.double()).log_prob

    def worst_error(size, steps):
        _, acceptance = hamiltonian_step(target, z, torch.tensor([size]), momentum, torch.zeros(1, 50), steps)
        return -acceptance.log().min()

    assert worst_error(0.2, 5) / worst_error(0.1, 10) == pytest.approx(4, rel=0.15)


def test_a_proposal_that_is_not_finite_is_refused():
    def cliff(z):
        return torch.where(z[..., 0] > 0.5, torch.nan, -0.5 * z.square().sum(-1))

    z = torch.zeros(1, 3, 1)
    momentum, uniform = torch.full((1, 3, 1), 5.0), torch.zeros(1, 3)
    moved, acceptance = hamiltonian_step(cliff, z, torch.tensor([1.0]), momentum, uniform, 2)
    assert torch.equal(moved, z) and torch.equal(acceptance, torch.zeros(1, 3))


def test_step_size_grows_above_the_target_acceptance_and_shrinks_below():
    sizes = tuned(torch.tensor([0.1, 0.1]), torch.tensor([[1.0, 1.0], [0.5, 0.7]]), target=0.9)
    assert sizes[0] > 0.1 > sizes[1]


def test_noise_of_a_replica_does_not_depend_on_the_others():
    together, alone = ReplicaNoise([3, 5]), ReplicaNoise([5])
    assert torch.equal(together.normal(4, 2)[1], alone.normal(4, 2)[0])
    assert torch.equal(together.uniform(4)[1], alone.uniform(4)[0])
