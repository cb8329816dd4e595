"""Random features of the digits: parts of one permutation, labels, flips and standardisation."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits

from data.digit_features import DigitFeatures


def made(**options) -> DigitFeatures:
    data = DigitFeatures(**{"features": 300, "size": 400, "pool": 100, "test": 300, "seed": [3, 4]} | options)
    data.setup()
    return data


def test_shapes_and_labels_of_every_part():
    data = made(draws=2)
    assert data.train.x.shape == (2, 2, 400, 300) and data.test.y.shape == (2, 2, 300)
    assert data.train.y.mean() == pytest.approx(load_digits().target.__mod__(2).mean(), abs=0.03)
    large = made(labels="large").train.y
    assert large.mean() == pytest.approx((load_digits().target >= 5).mean(), abs=0.05)


def test_training_features_are_standardised():
    x = made().train.x[0, 0]
    assert x.mean(0).abs().max() < 1e-12
    deviation = x.std(0, correction=0)
    assert bool(((deviation - 1).abs() < 1e-9).logical_or(deviation == 0).all())


def test_the_pool_s_size_changes_neither_training_nor_test_images():
    small, large = made(pool=50), made(pool=500)
    assert torch.equal(small.train.x, large.train.x) and torch.equal(small.test.y, large.test.y)
    pools = [made(pool=size, part="pool").train.x for size in (50, 500)]
    assert torch.equal(pools[0], pools[1][:, :, :50]) and not torch.equal(pools[0][0, 0, 0], small.train.x[0, 0, 0])


def test_flips_hit_the_wanted_share_of_training_labels_and_no_test_label():
    clean, noisy = made(size=1000), made(size=1000, flipped=0.15)
    assert torch.equal(clean.train.x, noisy.train.x) and torch.equal(clean.test.y, noisy.test.y)
    assert (clean.train.y != noisy.train.y).double().mean() == pytest.approx(0.15, abs=0.03)


def test_a_linear_fit_of_the_features_tells_odd_from_even():
    data = made(size=900, features=400)
    x, y = data.train.x[0, 0], data.train.y[0, 0]
    theta = torch.linalg.solve(x.T @ x + 10 * torch.eye(400, dtype=torch.float64), x.T @ (2 * y - 1))
    assert ((data.test.x[0, 0] @ theta > 0) != (data.test.y[0, 0] > 0)).double().mean() < 0.1


@pytest.mark.parametrize("options, message", [({"size": 1700}, "1797"), ({"labels": "prime"}, "parity or large"),
                                              ({"flipped": 1.0}, "share")])
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        made(**options)
