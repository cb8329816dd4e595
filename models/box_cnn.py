"""The convolutional networks of the literature on interval bounds, which give boxes beside points.

Source: Mao et al. (ICLR 2024, arXiv 2306.10426), file PARC_networks.py of their repository.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from models.box_layers import Normalise, ReplicaBatchNorm, ReplicaConv, ReplicaLinear, Reshape
from models.box_net import BoxNet, initialise

# For each depth the convolutions as (channels in units of the width, kernel, stride, padding), and the hidden units.
PLAIN, HALVING, WIDER = (1, 3, 1, 1), (2, 3, 2, 1), (2, 3, 1, 1)
CONVOLUTIONS = {
    2: ([PLAIN], None),
    3: ([(1, 5, 2, 2), (2, 4, 2, 1)], None),
    5: ([PLAIN, (1, 4, 2, 1), (2, 4, 2, 1)], 512),
    **{depth: ([PLAIN, PLAIN, HALVING, *[WIDER] * (depth - 5)], 512) for depth in (7, 9, 11, 13)},
}


class BoxCnn(BoxNet):
    """The convolutional networks of IBP training, named by their number of layers with weights.

    in_shape: channels, height, width. depth: 2, 3, 5, 7, 9, 11 or 13. width: channels of the first convolution.
    batch_norm: after every layer but the last. mean, deviation: of the pixels of each channel, for normalisation.
    relu, init, seeds: see BoxMlp. Raises ValueError for a depth without a network or an unknown init.
    """

    def __init__(self, in_shape: Sequence[int], width: int, depth: int, out_features: int, batch_norm: bool = False,
                 mean: Sequence[float] = (0.0,), deviation: Sequence[float] = (1.0,), relu: bool = True,
                 init: str = "default", seeds: int | Sequence[int] = 0):
        if depth not in CONVOLUTIONS:
            raise ValueError(f"model.depth is {depth}; it must be one of {', '.join(map(str, CONVOLUTIONS))}")
        seeds = [seeds] if isinstance(seeds, int) else list(seeds)
        shape, replicas = tuple(in_shape), len(seeds)
        norm = (lambda channels: [ReplicaBatchNorm(replicas, channels)]) if batch_norm else (lambda channels: [])
        convolutions, hidden = CONVOLUTIONS[depth]
        stages, before = [], [Reshape((math.prod(shape),), shape), Normalise(mean, deviation)]
        for factor, kernel, stride, padding in convolutions:
            layer = ReplicaConv(replicas, shape, factor * width, kernel, stride, padding)
            stages.append([*before, layer, *norm(factor * width)])
            shape, before = layer.out_shape, []
        features, before = math.prod(shape), [Reshape(shape, (math.prod(shape),))]
        if hidden:
            stages.append([*before, ReplicaLinear(replicas, features, hidden), *norm(hidden)])
            features, before = hidden, []
        super().__init__([*stages, [*before, ReplicaLinear(replicas, features, out_features)]], relu)
        initialise(self, init, seeds)
