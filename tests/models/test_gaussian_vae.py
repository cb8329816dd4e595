"""The replicated variational auto-encoder against torch.distributions, single models and counts made by hand."""

import pytest
import torch
from torch import nn

from models.gaussian_vae import GaussianVAE, gaussian_log_density


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def make(likelihood="bernoulli", seeds=(0, 1), hidden=7):
    return GaussianVAE(visible_dim=6, latent_dim=2, hidden_dim=hidden, likelihood=likelihood, init_sd=0.5, seeds=seeds)


def test_gaussian_log_density_is_that_of_torch_distributions():
    x, mean, log_variance = torch.randn(3, 4, 5, 2, generator=torch.Generator().manual_seed(0))
    expected = torch.distributions.Normal(mean, torch.exp(0.5 * log_variance)).log_prob(x).sum(-1)
    torch.testing.assert_close(gaussian_log_density(x, mean, log_variance), expected)


def test_networks_are_the_tanh_networks_of_appendix_c():
    model = make()
    x = torch.rand(2, 5, 6)
    mean, log_variance = model.encode(x)
    for replica in range(2):
        hidden, heads = model.encoder.hidden, model.encoder.heads
        h = torch.tanh(nn.functional.linear(x[replica], hidden.weight[replica].T, hidden.bias[replica, 0]))
        for head, value in zip(heads, (mean, log_variance), strict=True):
            expected = nn.functional.linear(h, head.weight[replica].T, head.bias[replica, 0])
            torch.testing.assert_close(value[replica], expected)


def test_bernoulli_likelihood_is_that_of_torch_distributions():
    model = make()
    x, z = torch.rand(2, 5, 6).round(), torch.randn(2, 5, 2)
    (logits,) = model.decoder(z)
    expected = torch.distributions.Bernoulli(logits=logits).log_prob(x).sum(-1)
    torch.testing.assert_close(model.log_likelihood(x, z), expected)


def test_gaussian_likelihood_has_a_mean_in_the_unit_interval_and_its_own_variance():
    model = make("gaussian")
    x, z = torch.rand(2, 5, 6), torch.randn(2, 5, 2)
    mean, log_variance = model.decoder(z)
    expected = torch.distributions.Normal(torch.sigmoid(mean), log_variance.exp().sqrt()).log_prob(x).sum(-1)
    torch.testing.assert_close(model.log_likelihood(x, z), expected)
    assert model.mean_picture(z).min() > 0 and model.mean_picture(z).max() < 1


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_likelihood_broadcasts_pictures_over_latents(likelihood):
    model = make(likelihood)
    x, z = torch.rand(2, 3, 1, 6), torch.randn(2, 1, 4, 2)
    table = model.log_likelihood(x, z)
    single = model.log_likelihood(x[:, 1], z[:, 0, 2:3])
    torch.testing.assert_close(table[:, 1, 2:3], single)


def test_dreams_have_the_decoders_mean():
    model, z = make(), torch.tensor([0.5, -1.0]).expand(2, 20000, 2)
    noise = torch.randn(2, 20000, 6, generator=torch.Generator().manual_seed(1))
    dreams = model.dream(z, noise)
    assert set(dreams.unique().tolist()) <= {0.0, 1.0}
    torch.testing.assert_close(dreams.mean(1), model.mean_picture(z)[:, 0], atol=0.015, rtol=0)


def test_gaussian_dreams_have_the_decoders_mean_and_variance():
    model, z = make("gaussian"), torch.tensor([0.5, -1.0]).expand(2, 20000, 2)
    dreams = model.dream(z, torch.randn(2, 20000, 6, generator=torch.Generator().manual_seed(1)))
    mean, log_variance = model.decoder(z[:, :1])
    torch.testing.assert_close(dreams.mean(1, keepdim=True), torch.sigmoid(mean), atol=0.05, rtol=0)
    torch.testing.assert_close(dreams.var(1, keepdim=True).log(), log_variance, atol=0.05, rtol=0)


def test_a_replica_starts_from_its_seed_whatever_the_others_are():
    together, alone = make(seeds=(3, 8)), make(seeds=8)
    for several, one in zip(together.parameters(), alone.parameters(), strict=True):
        assert torch.equal(several[1], one[0])


def test_initial_weights_and_biases_have_the_given_deviation():
    model = GaussianVAE(64, 10, 200, init_sd=0.1, seeds=0)
    values = torch.cat([parameter.flatten() for parameter in model.parameters()])
    assert values.std().item() == pytest.approx(0.1, rel=0.02) and abs(values.mean().item()) < 0.002


def test_copies_stand_side_by_side_and_pick_gives_one_back():
    model = make()
    repeated = model.repeat(3)
    assert repeated.replicas == 6
    assert all(torch.equal(a[4], b[1]) for a, b in zip(repeated.parameters(), model.parameters(), strict=True))
    picked = repeated.pick([5, 0])
    assert all(torch.equal(a, b[[1, 0]]) for a, b in zip(picked.parameters(), model.parameters(), strict=True))


def test_decoder_weights_round_trip():
    source, target = make(seeds=(0, 1)), make(seeds=(2, 3))
    target.load_decoder_weights(source.decoder_weights())
    z = torch.randn(2, 4, 2)
    assert torch.equal(source.mean_picture(z), target.mean_picture(z))


@pytest.mark.parametrize("latent", [3, 5, 10, 20, 200])
def test_parameter_count_at_paper_scale(latent):
    encoder = (784 * 500 + 500) + 2 * (500 * latent + latent)
    decoder = (latent * 500 + 500) + (500 * 784 + 784)
    model = GaussianVAE(784, latent, 500)
    assert sum(parameter.numel() for parameter in model.parameters()) == encoder + decoder


def test_frey_face_decoder_has_a_second_head():
    model = GaussianVAE(560, 2, 200, likelihood="gaussian")
    decoder = sum(parameter.numel() for parameter in model.decoder.parameters())
    assert decoder == (2 * 200 + 200) + 2 * (200 * 560 + 560)


def test_an_unknown_likelihood_is_refused_by_name():
    with pytest.raises(ValueError, match="'poisson'.*bernoulli, gaussian"):
        GaussianVAE(6, 2, 3, likelihood="poisson")
