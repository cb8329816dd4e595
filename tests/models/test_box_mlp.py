"""The perceptron with boxes against the plain one."""

from __future__ import annotations

import torch

from models.box_mlp import BoxMlp
from models.mlp import Mlp


def test_each_replica_is_the_plain_relu_perceptron():
    net, x = BoxMlp(6, 5, 4, 3, init="default", seeds=[1, 2]), torch.randn(2, 7, 6)
    for replica in range(2):
        plain = Mlp(6, [5, 5, 5], 3, activation="relu")
        for layer, stage in zip(plain.layers, net.stages, strict=True):
            layer.weight.data, layer.bias.data = stage[0].weight[replica], stage[0].bias[replica, 0]
        torch.testing.assert_close(net(x)[replica], plain(x[replica]))
