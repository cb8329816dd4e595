"""Probabilities of keeping, by sorting, against bisection; draws and directions by their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from experiments.data_selection.selection import log_score, probabilities, tilted_directions, uniforms


def logits(rows: int = 3, count: int = 400) -> torch.Tensor:
    return torch.from_numpy(8 * np.random.default_rng(2).standard_normal((rows, count)))


def test_the_score_is_a_power_of_p_times_one_minus_p_at_clipped_logits():
    z = logits()
    p = torch.sigmoid(z.clamp(-10, 10))
    for hardness in (-1.0, 0.0, 0.5):
        torch.testing.assert_close(log_score(z, hardness).exp(), (p * (1 - p)) ** hardness)


@pytest.mark.parametrize("hardness", [-1.0, -0.5, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
def test_probabilities_are_those_of_a_bisection(hardness, share):
    scores = log_score(logits(), hardness)
    found = probabilities(scores, share)
    for row, score in zip(found, scores.exp().numpy(), strict=True):
        scale = brentq(lambda c, score=score: np.minimum(c * score, 1).mean() - share, 0, 1e9, xtol=1e-13, rtol=1e-14)
        np.testing.assert_allclose(row, np.minimum(scale * score, 1), rtol=1e-6)
    np.testing.assert_allclose(found.mean(-1), share, rtol=1e-12)


def test_the_whole_sample_is_kept_at_share_one():
    assert bool((probabilities(log_score(logits(), 1.0), 1.0) == 1).all())


def test_draws_belong_to_the_seed_alone():
    both, alone = uniforms([3, 4], 2, 50), uniforms([4], 2, 50)
    assert torch.equal(both[1], alone[0]) and both.shape == (2, 2, 50)
    assert len({float(row[0]) for row in both.flatten(0, 1)}) == 4


def test_directions_have_the_wanted_parts():
    truth = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 40)))
    tilted = tilted_directions(truth, 2.75, 0.95, [0, 1])
    unit = truth / truth.norm(dim=-1, keepdim=True)
    along = (tilted * unit).sum(-1)
    torch.testing.assert_close(along, torch.full((2, 3), 2.75, dtype=torch.float64))
    torch.testing.assert_close((tilted - along[..., None] * unit).norm(dim=-1), torch.full((2, 3), 0.95, dtype=torch.float64))
    torch.testing.assert_close(tilted_directions(truth, 5.0, 0.0, [0, 1]), 5 * unit)
