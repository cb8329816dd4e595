"""The convolutional network against sums over patches."""

import numpy as np
import pytest
import torch

from models.ntk_conv import NtkConv


@pytest.mark.parametrize("stride, activation", [(1, "relu"), (2, "tanh")])
def test_outputs_equal_a_sum_over_filters_and_patches(stride, activation):
    torch.manual_seed(0)
    net = NtkConv(width=3, channels=2, side=5, stride=stride, activation=activation)
    x = torch.randn(4, 2, 5, 5, dtype=torch.float64)
    padded, across = np.pad(x.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1))), len(range(0, 5, stride))
    expected = np.zeros(4)
    for j in range(3):
        for row in range(across):
            for column in range(across):
                patch = padded[:, :, row * stride : row * stride + 3, column * stride : column * stride + 3]
                pre = (patch * net.u[j].detach().numpy()).sum((1, 2, 3)) / 18**0.5
                hidden = np.tanh(pre) if activation == "tanh" else np.maximum(pre, 0)
                expected += net.v[j, row, column].item() * hidden
    np.testing.assert_allclose(net(x).detach().numpy(), expected / (3 * across**2) ** 0.5, atol=1e-12)


def test_readout_weights_are_signs_and_an_unknown_activation_is_refused():
    assert set(NtkConv(50, 1, 4).v.detach().unique().tolist()) == {-1.0, 1.0}
    with pytest.raises(ValueError, match="swish.*relu, tanh"):
        NtkConv(2, 1, 4, activation="swish")
