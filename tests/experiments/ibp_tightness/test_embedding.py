"""Autoencoders against the authors' loop written out, and box growth against its closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from data.low_rank_gaussian import LowRankGaussian
from experiments.ibp_tightness.embedding import Embedding, embedding, growth, principal_components
from experiments.ibp_tightness.tightness import tightness
from models.linear_autoencoders import LinearAutoencoders

WIDTHS, EPS, STEPS = [3, 5], 0.05, 9


def points(seeds, dim=8, rank=4, size=30):
    data = LowRankGaussian(dim, rank, size, size, seed=seeds)
    data.setup()
    return data


def learner(method="box", seeds=(0, 4), **changes):
    return Embedding(LinearAutoencoders(8, WIDTHS, seeds=list(seeds)), method, [EPS],
                     **{"anneal_steps": 4, "lr": 0.02, "drop_after": 6} | changes)


def by_hand(method, keep, width, seed, x):
    """IBP_embedding_exp.py: bounds, max of the distances to both, SGD, and gradients cleared only on demand."""
    inner, outer = (stage[0].weight[0].detach().clone().requires_grad_()
                    for stage in LinearAutoencoders(8, [width], seeds=seed)[0].stages)
    for step in range(STEPS):
        eps = min(step / 4, 1) * EPS if method == "box" else 0.0
        radius = (outer.abs() @ inner.abs() @ torch.full((8,), eps))
        output = x @ inner.T @ outer.T
        distance = torch.maximum((output - radius - x).abs(), (output + radius - x).abs())
        loss = distance.square().sum(1).sqrt().mean()
        if not keep:
            inner.grad = outer.grad = None
        loss.backward()
        with torch.no_grad():
            for weight in (inner, outer):
                weight -= 0.02 * (1.0 if step < 6 else 0.1) * weight.grad
    return inner.detach(), outer.detach()


@pytest.mark.parametrize("method", ["box", "standard"])
@pytest.mark.parametrize("keep", [True, False])
def test_a_network_is_that_of_the_authors_loop_with_gradients_kept_or_cleared(method, keep, fit):
    data, together = points([0, 4]), learner(method, keep_gradients=keep)
    fit(together, data, STEPS)
    for net, width in zip(together.model, WIDTHS, strict=True):
        expected = by_hand(method, keep, width, 4, data.train.x[:, 1].float())
        for stage, weight in zip(net.stages, expected, strict=True):
            torch.testing.assert_close(stage[0].weight[1], weight, rtol=1e-3, atol=1e-5)


def test_kept_gradients_survive_a_resume(fit, tmp_path):
    whole, resumed = learner(), learner()
    fit(whole, points([0, 4]), STEPS)
    fit(learner(), points([0, 4]), 5).save_checkpoint(tmp_path / "half.ckpt")
    fit(resumed, points([0, 4]), STEPS, tmp_path / "half.ckpt")
    for key, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key]), key


def test_growth_is_tightness_and_its_two_radii():
    net, ones = LinearAutoencoders(6, [4], seeds=[0, 1])[0].double(), torch.ones(2, 1, 6).double()
    inner, outer = (stage[0].weight for stage in net.stages)
    tau, loose, best = growth(inner, outer)
    torch.testing.assert_close(tau, tightness(net, ones, ones).mean((1, 2)))
    np.testing.assert_allclose(loose[1].item(), np.mean(abs(outer[1].detach().numpy()) @ abs(inner[1].detach().numpy())
                                                        @ np.ones(6)))
    torch.testing.assert_close(best, (outer @ inner).abs().sum(2).mean(1))


def test_principal_components_are_those_of_the_subspace():
    x = points(3).train.x[:, 0]
    basis = principal_components(x, 10)
    assert basis.shape == (4, 8)
    torch.testing.assert_close(basis @ basis.T, torch.eye(4).double())
    torch.testing.assert_close(x @ basis.T @ basis, x)
    assert principal_components(x, 2).shape == (2, 8)


def test_the_measurement_has_the_growth_of_principal_components(fit, trained):
    data = LowRankGaussian(100, 40, 200, 50, seed=[0, 1])
    data.setup()
    plain = Embedding(LinearAutoencoders(100, [10, 60], seeds=[0, 1]), "standard", [0.01])
    fit(plain, data, 2)
    found = embedding(trained(plain, data, [0, 1], [0.01]))
    assert found["embed_tau"].shape == found["pca_radius"].shape == (2, 1, 2) and found["pca_ratio"].shape == (2, 1)
    np.testing.assert_allclose(found["pca_radius"][..., 1], 2 * 40 / math.pi, rtol=0.05)
    np.testing.assert_allclose(found["pca_radius"][..., 0], 2 * 10 / math.pi, rtol=0.1)
    np.testing.assert_allclose(found["pca_ratio"] * 80 / math.pi, found["pca_radius"][..., 1])
    spread = math.sqrt(2 * 40 * 0.6 / math.pi) + 0.4  # of a projection's entries off and on the diagonal, 40 of 100
    np.testing.assert_allclose(found["pca_exact_radius"][..., 1], spread, rtol=0.03)
    np.testing.assert_allclose(found["embed_tau"] * found["embed_radius"], found["embed_exact_radius"], rtol=0.05)


def test_an_arm_with_several_radii_or_another_method_is_refused():
    nets = LinearAutoencoders(4, [2])
    with pytest.raises(ValueError, match="one radius"):
        Embedding(nets, "box", [0.1, 0.2])
    with pytest.raises(ValueError, match="box or standard"):
        Embedding(nets, "pgd", 0.1)
