"""Random networks: one draw after another, what IBP's gradient does, and what a resume must keep."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from experiments.ibp_tightness.initialisation import Draws, both_tightnesses, draw_seed, gradient_effect
from experiments.ibp_tightness.measure import at_initialisation
from experiments.ibp_tightness.tightness import gaussian_tightness
from models.box_cnn import BoxCnn
from models.box_mlp import BoxMlp

PUBLISHED = [[0.09573, 0.1383], [0.01224, 0.02491]]  # of the authors' networks of 2 and 3 layers


def make(seeds, steps=3):
    return Draws(None, seeds, [0.1], widths=[16, 64], depths=[2, 3, 4], deep_width=64, convolutional=[[2, 16], [3, 16]],
                 steps=steps, pictures=10)


@pytest.fixture(scope="module")
def drawn(digits, fit):
    learner, data = make([0, 5]), digits([0, 5])
    assert fit(learner, data, 3).global_step == 3
    return learner, data


def test_every_step_draws_anew_and_the_optimiser_counts(drawn):
    learner, _ = drawn
    assert learner.drawn.item() == 3
    for name in ("width", "depth", "gradient"):
        values = getattr(learner, name)
        assert values.isfinite().all() and not torch.equal(values[0], values[1])
    assert learner.cnn.isfinite().all()


def test_a_seed_draws_its_own_networks_whatever_stands_beside_it(drawn, digits, fit):
    alone = make([5])
    fit(alone, digits([5]), 3)
    for name in ("width", "depth", "gradient", "cnn"):
        torch.testing.assert_close(getattr(alone, name)[..., 0], getattr(drawn[0], name)[..., 1])


def test_a_resumed_fit_ends_with_the_same_draws(drawn, digits, fit, tmp_path):
    fit(make([0, 5]), digits([0, 5]), 1).save_checkpoint(tmp_path / "half.ckpt")
    resumed = make([0, 5])
    fit(resumed, digits([0, 5], start=1), 3, tmp_path / "half.ckpt")
    for key, value in drawn[0].state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key]), key


def test_measured_tightness_follows_the_theory_and_the_authors_networks(drawn, trained):
    found = at_initialisation(trained(*drawn, [0, 5], [0.1]), PUBLISHED)
    assert all(value.shape[:2] == (2, 1) for value in found.values())
    theory = [gaussian_tightness(width) for width in (16, 64)]
    np.testing.assert_allclose(found["init_width"][:, 0, :, 0], np.tile(theory, (2, 1)), rtol=0.1)
    np.testing.assert_allclose(found["init_width"][:, 0, :, 1], np.sqrt(2) * np.tile(theory, (2, 1)), rtol=0.15)
    assert (found["init_depth_drop"] > 5).all() and (found["init_depth_fit"] > 0.99).all()
    assert (found["init_width_slope"] < -0.4).all() and (found["cnn_decades"] < 0.05).all()
    np.testing.assert_allclose(found["cnn"][:, 0], np.tile(PUBLISHED, (2, 1, 1)), rtol=0.1)


def test_an_arm_of_another_kind_has_no_such_numbers(drawn, trained, digits):
    from experiments.ibp_tightness.objective import Classifier

    other = Classifier(BoxMlp(64, 4, 2, 10, seeds=[0, 1]), "standard", [0, 1], [0.1, 0.2], 3)
    found = at_initialisation(trained(other, digits([0, 1]), [0, 1], [0.1, 0.2]), PUBLISHED)
    assert all(np.isnan(value).all() and value.shape == (2, 2) for value in found.values())


def test_both_tightnesses_differ_by_the_pattern_alone():
    x = torch.rand(1, 3, 48).double()
    net = BoxCnn([3, 4, 4], 2, 3, 4, seeds=0).double()
    linear = BoxCnn([3, 4, 4], 2, 3, 4, relu=False, seeds=0).double()
    torch.testing.assert_close(both_tightnesses(net, x, 0.1)[0], both_tightnesses(linear, x, 0.1)[1])


def test_the_gradients_effect_is_that_of_a_step_along_ibps_extra_gradient():
    net = BoxMlp(6, 9, 2, 3, relu=False, bias=False, init="gaussian", seeds=[1, 2]).double()
    x, labels = torch.rand(2, 5, 6).double(), torch.randint(3, (2, 5))
    inner, outer = (stage[0].weight[1].detach().clone().requires_grad_() for stage in net.stages)
    radius = (torch.minimum(x[1] + 0.1, torch.tensor(1.0)) - (x[1] - 0.1).clamp(min=0)) / 2
    middle = ((x[1] + 0.1).clamp(max=1) + (x[1] - 0.1).clamp(min=0)) / 2

    def tau():
        return ((outer @ inner).abs() @ radius.T / (outer.abs() @ inner.abs() @ radius.T)).mean()

    losses = [cross_entropy(x[1] @ inner.T @ outer.T, labels[1]), 0.0]
    for point in range(5):
        margins = outer - outer[labels[1, point]]
        upper = margins @ inner @ middle[point] + margins.abs() @ inner.abs() @ radius[point]
        losses[1] = losses[1] + cross_entropy(upper[None], labels[1, point : point + 1]) / 5
    plain, certified, rise = (torch.cat([g.flatten() for g in torch.autograd.grad(value, (inner, outer))])
                              for value in (*losses, tau()))
    cosine = torch.cosine_similarity(plain - certified, rise, dim=0)
    found = gradient_effect(net, x, labels, 0.1, step=1e-6)
    torch.testing.assert_close(found[0, 1], cosine)
    weights = torch.cat([inner.flatten(), outer.flatten()]).norm()
    torch.testing.assert_close(found[1, 1], 1e-6 * weights * cosine * rise.norm() / tau(), rtol=1e-3, atol=1e-12)


def test_seeds_made_of_numbers_differ_by_each_of_them():
    assert len({draw_seed(*parts) for parts in ((0, 1, 2), (0, 2, 1), (1, 1, 2), (0, 1))}) == 4
