"""The synthetic data: laws of the labels, independence of the parts, and what runs share."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from data.gaussian_logistic import LAWS, GaussianLogistic, find_law


def drawn(**options) -> GaussianLogistic:
    data = GaussianLogistic(**{"features": 20, "size": 300, "draws": 2, "seed": [5, 6]} | options)
    data.setup()
    return data


def test_the_laws_have_the_papers_values_and_are_odd_about_a_half():
    z = np.array([-3.0, -0.6, -0.4, -0.1, 0.1, 0.4, 0.6, 3.0])
    np.testing.assert_allclose(LAWS["misspec"].probability(z), [0.05] * 4 + [0.95] * 4)
    np.testing.assert_allclose(LAWS["misspec2"].probability(z), [0.3, 0.3, 0.05, 0.05, 0.95, 0.95, 0.7, 0.7])
    np.testing.assert_allclose(LAWS["logistic"].probability(z), 1 / (1 + np.exp(-z)))
    for law in LAWS.values():
        np.testing.assert_allclose(law.probability(z) + law.probability(-z), 1)


def test_an_unknown_law_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="logistic, misspec, misspec2"):
        find_law("misspec3")


def test_shapes_and_the_direction_s_length():
    data = drawn(pool=50)
    assert data.train.x.shape == (2, 2, 300, 20) and data.train.y.shape == (2, 2, 300)
    assert data.train.x.dtype == torch.float64 and set(data.train.y.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(data.truth.norm(dim=-1), torch.full((2, 2), 5.0, dtype=torch.float64))
    assert data.test is None


@pytest.mark.parametrize("name", LAWS)
def test_labels_follow_the_law_of_the_logit(name):
    data = drawn(size=40000, labels=name, draws=1, seed=1)
    logit = torch.einsum("sdnp,sdp->sdn", data.train.x, data.truth).flatten().numpy()
    label = data.train.y.flatten().numpy()
    for low, high in ((-9, -0.5), (-0.5, 0), (0, 0.5), (0.5, 1), (1, 9)):
        inside = (logit >= low) & (logit < high)
        expected = LAWS[name].probability(logit[inside]).mean()
        assert label[inside].mean() == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(inside.sum()))


def test_a_seed_s_data_do_not_depend_on_its_company_the_law_or_the_pool():
    both, alone, other = drawn(), drawn(seed=6), drawn(labels="logistic", pool=30)
    assert torch.equal(both.train.x[1], alone.train.x[0]) and torch.equal(both.train.y[1], alone.train.y[0])
    assert torch.equal(both.train.x, other.train.x) and not torch.equal(both.train.y, other.train.y)
    assert both.fingerprint() == drawn().fingerprint() != other.fingerprint()


def test_the_pool_is_other_samples_of_the_same_direction():
    train, pool = drawn(pool=300), drawn(pool=300, part="pool")
    assert torch.equal(train.truth, pool.truth) and not torch.isclose(train.train.x, pool.train.x).any()
    logit = torch.einsum("sdnp,sdp->sdn", pool.train.x, pool.truth)
    assert ((logit > 0) == (pool.train.y > 0)).double().mean() == pytest.approx(0.95, abs=0.03)


def test_a_pool_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="set data.pool"):
        drawn(part="pool")
