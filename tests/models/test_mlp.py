"""The fully connected network against matrix algebra in numpy and the parameter counts of the networks it names."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.mlp import Mlp


def by_hand(model: Mlp, inputs: np.ndarray, activation) -> np.ndarray:
    features = inputs.reshape(len(inputs), -1)
    weights = [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in model.layers]
    for weight, bias in weights[:-1]:
        features = activation(features @ weight.T + bias)
    return features @ weights[-1][0].T + weights[-1][1]


@pytest.mark.parametrize("hidden", [[], [7], [7, 5]])
@pytest.mark.parametrize("name, activation", [
    ("sigmoid", lambda z: 1 / (1 + np.exp(-z))), ("tanh", np.tanh), ("relu", lambda z: np.maximum(z, 0)),
])
def test_logits_equal_matrix_algebra(hidden, name, activation):
    model = Mlp(12, hidden, 3, activation=name).double()
    inputs = np.random.default_rng(0).standard_normal((5, 3, 4))
    with torch.no_grad():
        logits = model(torch.from_numpy(inputs)).numpy()
    np.testing.assert_allclose(logits, by_hand(model, inputs, activation), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("hidden, count", [  # of 784 pixels, weights and biases counted from the widths
    ([], 7850), ([100, 100], 89610), ([200, 200], 199210), ([123, 456], 157669), ([400], 318010),
])
def test_the_papers_networks_have_the_parameters_their_names_say(hidden, count):
    assert sum(parameter.numel() for parameter in Mlp(784, hidden, 10).parameters()) == count


def test_code_of_depth_zero_is_the_flat_input_and_of_full_depth_feeds_the_last_layer():
    model, inputs = Mlp(6, [5, 4], 3), torch.rand(2, 2, 3)
    assert torch.equal(model.code(inputs, 0), inputs.flatten(1))
    assert torch.equal(model.layers[-1](model.code(inputs, 2)), model(inputs))


def test_an_unknown_activation_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="'selu' is not one of relu, sigmoid, tanh"):
        Mlp(4, [], 2, activation="selu")


def test_a_width_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        Mlp(4, [0], 2)
