"""ReLU and linear networks that give boxes beside points, all replicas at once.

A network is a chain of stages with a ReLU between them (none in a linear network); a stage is a chain of the affine
layers of ``models.box_layers``. The replicas of a network (one for each seed and setting) run together and never mix.
Interval bounds: Gowal et al., 2018, arXiv 1810.12715. Initialisation for certified training: Shi et al., 2021, arXiv
2103.17268.

Letters: R replicas, B points, K classes, D inputs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from models.box_layers import ReplicaBatchNorm, ReplicaConv, ReplicaLinear

INITS = ("gaussian", "kaiming", "default", "shi")


class Box(NamedTuple):
    """All points within ``radius`` of ``centre`` in every coordinate; both of one shape."""

    centre: Tensor
    radius: Tensor

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """The lowest and the highest corner."""
        return self.centre - self.radius, self.centre + self.radius

    def rectified(self) -> Box:
        """The smallest box around the ReLU of this one."""
        lower, upper = (end.clamp(min=0) for end in self.ends)
        return Box((lower + upper) / 2, (upper - lower) / 2)


class Stage(nn.ModuleList):
    """Affine layers, one after the other, as one affine map."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(x)
        return x

    def observe(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer.observe(x) if isinstance(layer, ReplicaBatchNorm) else layer(x)
        return x

    def spread(self, radius: Tensor) -> Tensor:
        for layer in self:
            radius = layer.spread(radius)
        return radius

    def spread_margins(self, radius: Tensor, labels: Tensor) -> Tensor:
        for layer in self[:-1]:
            radius = layer.spread(radius)
        return self[-1].spread_margins(radius, labels)

    def pull(self, rows: Tensor) -> Tensor:
        for layer in reversed(self):
            rows = layer.pull(rows)
        return rows


class BoxNet(nn.Module):
    """Stages with ReLU between them. The last layer of the last stage is a ReplicaLinear, whose outputs are logits.

    stages: the layers of each stage. relu: False makes a deep linear network. Inputs are flat: (R, B, D).
    """

    def __init__(self, stages: Sequence[Sequence[nn.Module]], relu: bool = True):
        super().__init__()
        self.stages = nn.ModuleList(Stage(layers) for layers in stages)
        self.relu = relu

    @property
    def replicas(self) -> int:
        return self.stages[-1][-1].weight.shape[0]

    @property
    def outputs(self) -> int:
        return self.stages[-1][-1].weight.shape[1]

    def repeat(self, copies: int) -> BoxNet:
        """A new network with every replica ``copies`` times, side by side: replica r copies replica r // copies."""
        chosen = copy.deepcopy(self)
        for tensor in (*chosen.parameters(), *chosen.buffers()):
            if tensor.shape[0] == self.replicas:
                tensor.data = tensor.data.repeat_interleave(copies, 0)
        for layer in chosen.modules():
            if isinstance(layer, ReplicaConv):
                layer.replicas *= copies
        return chosen

    def forward(self, x: Tensor) -> Tensor:
        """Logits (R, B, K) of points (R, B, D)."""
        return self.trace(x)[-1]

    def trace(self, x: Tensor) -> list[Tensor]:
        """What every stage gives, before the ReLU: for points (R, B, D) a list that ends with the logits (R, B, K)."""
        outputs = []
        for stage in self.stages:
            outputs.append(stage(x))
            x = outputs[-1].relu() if self.relu else outputs[-1]
        return outputs

    def observe(self, x: Tensor) -> Tensor:
        """Logits (R, B, K) of clean training points, whose statistics any batch normalisation takes over."""
        for stage in self.stages[:-1]:
            x = stage.observe(x)
            x = x.relu() if self.relu else x
        return self.stages[-1].observe(x)

    def patterns(self, x: Tensor) -> list[Tensor] | None:
        """Which units are active, 0 or 1, in each stage but the last at points (R, B, D); None in a linear network."""
        return [(z > 0).to(z.dtype) for z in self.trace(x)[:-1]] if self.relu else None

    def boxes(self, box: Box, labels: Tensor | None = None) -> list[Box]:
        """Interval bounds of what every stage gives, before the ReLU, for a box of inputs (R, B, D).

        labels: (R, B) makes the last box one of margins, logit j minus logit of the label, with the subtraction
        merged into the weights (elision).
        """
        found = []
        for stage in self.stages[:-1]:
            found.append(Box(stage(box.centre), stage.spread(box.radius)))
            box = found[-1].rectified() if self.relu else found[-1]
        last, centre = self.stages[-1], self.stages[-1](box.centre)
        if labels is None:
            return [*found, Box(centre, last.spread(box.radius))]
        centre = centre - centre.take_along_dim(labels[..., None], 2)
        return [*found, Box(centre, last.spread_margins(box.radius, labels))]

    def pull(self, rows: Tensor, patterns: Sequence[Tensor] | None) -> Tensor:
        """Coefficients on the logits as coefficients on the inputs, with the units' activity frozen.

        rows: (R, B, N, K); patterns: as ``patterns`` gives them. Returns (R, B, N, D); B = 1 serves any number of
        points of a linear network.
        """
        points = rows.shape[1:3]
        for place in reversed(range(len(self.stages))):
            rows = self.stages[place].pull(rows.flatten(1, 2)).unflatten(1, points)
            if place and patterns is not None:
                rows = rows * patterns[place - 1][:, :, None]
        return rows.flatten(3)

    def spread(self, radius: Tensor, patterns: Sequence[Tensor] | None, labels: Tensor | None = None) -> Tensor:
        """Layer-wise radii |W_L| D ... D |W_1| r of the logits, or margins, for input radii (R, B, D): (R, B, K)."""
        for place, stage in enumerate(self.stages[:-1]):
            radius = stage.spread(radius)
            radius = radius if patterns is None else radius * patterns[place]
        last = self.stages[-1]
        return last.spread(radius) if labels is None else last.spread_margins(radius, labels)

    def weighted_layers(self) -> Iterator[ReplicaLinear | ReplicaConv]:
        """The layers with matrices of weights, from the inputs on."""
        return (layer for layer in self.modules() if isinstance(layer, ReplicaLinear | ReplicaConv))


@torch.no_grad()
def initialise(net: BoxNet, init: str, seeds: Sequence[int]) -> None:
    """Draw all weights and biases, replica r from seed r alone.

    init: ``gaussian`` N(0, 1 / fan_in) without biases; ``kaiming`` N(0, 2 / fan_in) without biases; ``default``, that
    of torch, uniform within 1 / sqrt(fan_in); ``shi`` N(0, 2 pi / fan_in^2), the last layer and biases as ``default``.
    Raises ValueError for any other.
    """
    if init not in INITS:
        raise ValueError(f"model.init is {init!r}; it must be one of {', '.join(INITS)}")
    layers = list(net.weighted_layers())
    for replica, seed in enumerate(seeds):
        generator = torch.Generator().manual_seed(seed)
        for layer in layers:
            _draw(layer, replica, "default" if init == "shi" and layer is layers[-1] else init, generator)


def _draw(layer: ReplicaLinear | ReplicaConv, replica: int, init: str, generator: torch.Generator) -> None:
    shape = layer.weight.shape[1:]
    fan_in = math.prod(shape[1:])
    deviation = {"gaussian": fan_in**-0.5, "kaiming": (2 / fan_in) ** 0.5, "shi": (2 * math.pi) ** 0.5 / fan_in}
    if init in deviation:
        layer.weight[replica] = deviation[init] * torch.randn(shape, generator=generator)
    else:
        layer.weight[replica] = _uniform(shape, fan_in, generator)
    if layer.bias is not None and init in ("default", "shi"):
        layer.bias[replica] = _uniform(layer.bias.shape[1:], fan_in, generator)


def _uniform(shape: Sequence[int], fan_in: int, generator: torch.Generator) -> Tensor:
    return (2 * torch.rand(shape, generator=generator) - 1) * fan_in**-0.5
