"""The side-by-side linear classifiers: shapes and logits."""

from __future__ import annotations

import pytest
import torch

from models.logistic_regressions import LogisticRegressions


def test_each_classifier_reads_its_own_data_set():
    model = LogisticRegressions(4, [[10, 11], 3, [0.1, 0.5], 1])
    assert model.weight.shape == (2, 3, 2, 1, 4) and not model.weight.any()
    generator = torch.Generator().manual_seed(0)
    model.weight.data = torch.randn(model.weight.shape, generator=generator, dtype=torch.float64)
    inputs = torch.randn(2, 3, 7, 4, generator=generator, dtype=torch.float64)
    assert torch.allclose(model(inputs)[1, 2, 0, 0], inputs[1, 2] @ model.weight[1, 2, 0, 0])


def test_four_axes_are_expected():
    with pytest.raises(ValueError, match="3 axes"):
        LogisticRegressions(4, [1, 1, 1])
