"""Every layer's three maps against its Jacobian by automatic differentiation and against torch's own layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from models.box_layers import Normalise, ReplicaBatchNorm, ReplicaConv, ReplicaLinear, Reshape

REPLICAS = 2


def filled(layer: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    for parameter in layer.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    return layer.double().eval()


def batch_norm(channels: int) -> ReplicaBatchNorm:
    layer = ReplicaBatchNorm(REPLICAS, channels)
    layer.running_mean, layer.running_var = torch.randn(REPLICAS, channels), torch.rand(REPLICAS, channels) + 0.5
    return layer


LAYERS = {  # a layer and the shape of its inputs, odd on purpose
    "linear": (lambda: ReplicaLinear(REPLICAS, 7, 5), (7,)),
    "linear_without_bias": (lambda: ReplicaLinear(REPLICAS, 3, 1, bias=False), (3,)),
    "conv": (lambda: ReplicaConv(REPLICAS, (3, 7, 6), 4, 3, 1, 1), (3, 7, 6)),
    "conv_that_skips_pixels": (lambda: ReplicaConv(REPLICAS, (2, 8, 7), 3, 5, 2, 2), (2, 8, 7)),
    "conv_of_even_kernel": (lambda: ReplicaConv(REPLICAS, (2, 7, 6), 5, 4, 2, 1), (2, 7, 6)),
    "batch_norm_of_pictures": (lambda: batch_norm(3), (3, 4, 5)),
    "batch_norm_of_vectors": (lambda: batch_norm(6), (6,)),
    "normalise": (lambda: Normalise([0.1, 0.4], [0.5, 0.2]), (2, 3, 3)),
    "reshape": (lambda: Reshape((12,), (3, 2, 2)), (12,)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_spread_and_pull_are_the_absolute_and_the_transposed_jacobian(name):
    make, shape = LAYERS[name]
    torch.manual_seed(1)
    layer, x = filled(make()), torch.randn(REPLICAS, 3, *shape).double()
    radius, y = torch.rand_like(x), layer(x)
    rows = torch.randn(REPLICAS, 4, *y.shape[2:]).double()
    for replica in range(REPLICAS):
        def alone(point, replica=replica):
            return layer(point.expand(REPLICAS, 1, *shape))[replica, 0].flatten()

        jacobian = torch.autograd.functional.jacobian(alone, x[replica, 1]).flatten(1)
        spread = jacobian.abs() @ radius[replica, 1].flatten()
        torch.testing.assert_close(layer.spread(radius)[replica, 1].flatten(), spread)
        torch.testing.assert_close(layer.pull(rows)[replica].flatten(1), rows[replica].flatten(1) @ jacobian)


def test_replicas_are_torchs_own_convolutions_side_by_side():
    layer, x = filled(ReplicaConv(REPLICAS, (3, 9, 8), 4, 5, 2, 2)), torch.randn(REPLICAS, 5, 3, 9, 8).double()
    assert layer(x).shape[2:] == layer.out_shape
    for replica in range(REPLICAS):
        expected = nn.functional.conv2d(x[replica], layer.weight[replica], layer.bias[replica], stride=2, padding=2)
        torch.testing.assert_close(layer(x)[replica], expected)


@pytest.mark.parametrize("shape, reference", [((4, 3, 5), nn.BatchNorm2d), ((4,), nn.BatchNorm1d)])
def test_batch_normalisation_observes_like_torchs_own(shape, reference):
    layer, own = ReplicaBatchNorm(REPLICAS, 4), [reference(4) for _ in range(REPLICAS)]
    for _ in range(3):
        x = 2 + torch.randn(REPLICAS, 6, *shape)
        observed = layer.observe(x)
        for replica in range(REPLICAS):
            torch.testing.assert_close(observed[replica], own[replica](x[replica]), rtol=1e-4, atol=1e-5)
    layer.eval()
    for replica in range(REPLICAS):
        torch.testing.assert_close(layer(x)[replica], own[replica].eval()(x[replica]), rtol=1e-4, atol=1e-5)


def test_in_training_boxes_use_the_statistics_of_the_clean_batch():
    layer, clean = ReplicaBatchNorm(1, 3), torch.randn(1, 50, 3) * 4
    layer.observe(clean)
    radius = torch.rand(1, 2, 3)
    deviation = clean.var(1, unbiased=False).add(layer.eps).sqrt()
    torch.testing.assert_close(layer.spread(radius), radius / deviation[:, None])


def test_margins_subtract_the_labels_row_before_the_absolute_value():
    layer, radius = filled(ReplicaLinear(REPLICAS, 6, 4)), torch.rand(REPLICAS, 3, 6).double()
    labels = torch.tensor([[0, 3, 1], [2, 2, 0]])
    found = layer.spread_margins(radius, labels)
    for replica in range(REPLICAS):
        for point in range(3):
            weight = layer.weight[replica]
            rows = (weight - weight[labels[replica, point]]).abs()
            torch.testing.assert_close(found[replica, point], rows @ radius[replica, point])
