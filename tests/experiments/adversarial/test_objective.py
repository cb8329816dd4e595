"""Training by full-batch L-BFGS against scikit-learn's solutions of the convex cases, and the parts of the losses."""

from __future__ import annotations

import warnings

import lightning as L
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from experiments.adversarial.objective import Classifier, Reconstruction, activity_divergence, weight_penalty
from models.mlp import Mlp


@pytest.fixture(scope="module")
def clusters() -> tuple[torch.Tensor, torch.Tensor]:
    """200 points in 8 dimensions around 4 centres that overlap."""
    generator = np.random.default_rng(5)
    labels = generator.integers(4, size=200)
    points = generator.standard_normal((4, 8))[labels] + 1.2 * generator.standard_normal((200, 8))
    return torch.from_numpy(points.astype(np.float32)), torch.from_numpy(labels)


def fit(objective: L.LightningModule, data: tuple[torch.Tensor, torch.Tensor], steps: int) -> None:
    trainer = L.Trainer(
        accelerator="cpu", max_steps=steps, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(objective, DataLoader([data], batch_size=None))


def test_weight_decay_gives_scikit_learns_logistic_regression(clusters):
    from sklearn.linear_model import LogisticRegression

    points, labels = clusters
    torch.manual_seed(0)
    model = Mlp(8, [], 4)
    fit(Classifier(model, decay=[0.1]), clusters, 5)
    # 0.1 |W|^2 / 4 + mean loss is LogisticRegression's |W|^2 / 2 + C * sum of losses, up to a factor
    reference = LogisticRegression(C=4 / (2 * 0.1 * 200), tol=1e-10, max_iter=1000).fit(points.numpy(), labels.numpy())
    np.testing.assert_allclose(model.layers[0].weight.detach().numpy(), reference.coef_, atol=2e-3)


def test_the_hinge_loss_gives_scikit_learns_linear_svm(clusters):
    from sklearn.svm import LinearSVC

    points, labels = clusters
    model = Mlp(8, [], 4)
    fit(Classifier(model, loss="hinge", svm_c=0.1), clusters, 5)
    reference = LinearSVC(C=0.1, tol=1e-10, max_iter=100000).fit(points.numpy(), labels.numpy())
    layer = model.layers[0]
    np.testing.assert_allclose(layer.weight.detach().numpy(), reference.coef_, atol=1e-3)
    np.testing.assert_allclose(layer.bias.detach().numpy(), reference.intercept_, atol=1e-3)


def test_a_hidden_layer_separates_what_a_linear_model_cannot():
    points = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    labels = torch.tensor([0, 1, 1, 0])
    torch.manual_seed(0)
    model = Mlp(2, [8], 2)
    fit(Classifier(model, decay=[0.0, 0.0]), (points, labels), 5)
    assert torch.equal(model(points).argmax(1), labels)


def test_the_penalty_divides_each_layer_by_its_own_units():
    model = Mlp(3, [2], 5)
    with torch.no_grad():
        for layer in model.layers:
            layer.weight.fill_(2.0)
    assert float(weight_penalty(model, [0.1, 0.01]).detach()) == pytest.approx(0.1 * (6 * 4) / 2 + 0.01 * (10 * 4) / 5)


def test_an_autoencoder_learns_its_encoder_and_leaves_the_classifiers_layer(clusters):
    points, labels = clusters
    images = points.sigmoid()
    torch.manual_seed(0)
    model = Mlp(8, [6], 4)
    objective = Reconstruction(model, lr=0.02, sparsity=0.01)
    first, last = (layer.weight.detach().clone() for layer in model.layers)
    before = (objective(images) - images).square().mean()
    for _ in range(3):
        fit(objective, (images, labels), 60)
    assert (objective(images) - images).square().mean() < 0.5 * before
    assert not torch.equal(model.layers[0].weight, first) and torch.equal(model.layers[1].weight, last)


def test_a_frozen_first_layer_stays_as_it_is(clusters):
    model = Mlp(8, [6], 4)
    first, last = (layer.weight.detach().clone() for layer in model.layers)
    fit(Classifier(model, decay=[0.0, 1e-3], freeze_first=True), clusters, 1)
    assert torch.equal(model.layers[0].weight, first) and not torch.equal(model.layers[1].weight, last)


def test_the_activity_divergence_is_bernoullis():
    rates = torch.tensor([0.1, 0.3, 0.9], dtype=torch.float64)
    assert float(activity_divergence(torch.full((3,), 0.2), 0.2)) == pytest.approx(0.0, abs=1e-7)
    wanted, given = torch.distributions.Bernoulli(torch.tensor(0.2).double()), torch.distributions.Bernoulli(rates)
    reference = torch.distributions.kl_divergence(wanted, given).mean()
    assert float(activity_divergence(rates, 0.2)) == pytest.approx(float(reference), rel=1e-6)


def test_settings_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="'squared' is not one of cross_entropy, hinge"):
        Classifier(Mlp(4, [], 2), loss="squared")
    with pytest.raises(ValueError, match="each of the 2 layers"):
        Classifier(Mlp(4, [3], 2), decay=[1e-4])
