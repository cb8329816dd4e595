"""Convolutional networks with boxes against those that the authors write out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from models.box_cnn import BoxCnn


def reference_cnn(depth: int, width: int) -> nn.Sequential:
    """The authors' networks for pictures of 3 x 32 x 32, as their file PARC_networks.py writes them out."""
    w = width
    blocks = {
        3: [nn.Conv2d(3, w, 5, 2, 2), nn.ReLU(), nn.Conv2d(w, 2 * w, 4, 2, 1), nn.ReLU(), nn.Flatten(),
            nn.Linear(64 * 2 * w, 10)],
        5: [nn.Conv2d(3, w, 3, 1, 1), nn.ReLU(), nn.Conv2d(w, w, 4, 2, 1), nn.ReLU(), nn.Conv2d(w, 2 * w, 4, 2, 1),
            nn.ReLU(), nn.Flatten(), nn.Linear(64 * 2 * w, 512), nn.ReLU(), nn.Linear(512, 10)],
        7: [nn.Conv2d(3, w, 3, 1, 1), nn.ReLU(), nn.Conv2d(w, w, 3, 1, 1), nn.ReLU(), nn.Conv2d(w, 2 * w, 3, 2, 1),
            nn.ReLU(), nn.Conv2d(2 * w, 2 * w, 3, 1, 1), nn.ReLU(), nn.Conv2d(2 * w, 2 * w, 3, 1, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(256 * 2 * w, 512), nn.ReLU(), nn.Linear(512, 10)],
    }
    return nn.Sequential(*blocks[depth])


@pytest.mark.parametrize("depth", [3, 5, 7])
def test_convolutional_networks_are_the_authors_own(depth):
    net, plain = BoxCnn([3, 32, 32], 2, depth, 10, seeds=[0, 4]), reference_cnn(depth, 2)
    own = [layer for layer in plain if not isinstance(layer, nn.ReLU | nn.Flatten)]
    for layer, replicated in zip(own, net.weighted_layers(), strict=True):
        layer.weight.data, layer.bias.data = replicated.weight[1], replicated.bias[1].flatten()
    x = torch.rand(2, 3, 3072)
    torch.testing.assert_close(net(x)[1], plain(x[1].view(3, 3, 32, 32)))


@pytest.mark.parametrize("depth, layers", [(2, 2), (9, 9), (11, 11), (13, 13)])
def test_a_network_has_as_many_layers_with_weights_as_its_name_says(depth, layers):
    with torch.device("meta"):
        net = BoxCnn([3, 32, 32], 64, depth, 10, batch_norm=True)
    assert len(list(net.weighted_layers())) == layers
