"""Points in a random subspace: their rank, their coordinates, and that a seed's points are its own."""

from __future__ import annotations

import pytest
import torch

from data.low_rank_gaussian import LowRankGaussian


def loaded(seed):
    data = LowRankGaussian(dim=12, rank=4, train_size=30, test_size=20, seed=seed)
    data.setup()
    return data


def test_points_span_a_subspace_of_the_rank_and_keep_the_norms_of_their_coordinates():
    data = loaded([0, 1])
    assert data.train.x.shape == (30, 2, 12) and data.test.y.shape == (20, 2, 4)
    for seed in range(2):
        points = torch.cat([data.train.x[:, seed], data.test.x[:, seed]])
        assert torch.linalg.matrix_rank(points) == 4
        torch.testing.assert_close(data.train.x[:, seed].norm(dim=1), data.train.y[:, seed].norm(dim=1))


def test_coordinates_are_standard_normal():
    data = LowRankGaussian(dim=8, rank=8, train_size=4000, test_size=1, seed=3)
    data.setup()
    torch.testing.assert_close(torch.cov(data.train.y[:, 0].T), torch.eye(8).double(), rtol=0, atol=0.1)


def test_a_seed_has_its_own_points_whatever_stands_beside_it():
    assert torch.equal(loaded([0, 7]).train.x[:, 1], loaded(7).train.x[:, 0])
    assert not torch.equal(loaded(7).train.x, loaded(8).train.x)


def test_a_rank_above_the_dimension_is_refused():
    with pytest.raises(ValueError, match="rank=5"):
        LowRankGaussian(dim=4, rank=5, train_size=3, test_size=3)
