"""Fully connected networks that give boxes beside points."""

from __future__ import annotations

from collections.abc import Sequence

from models.box_layers import ReplicaLinear
from models.box_net import BoxNet, initialise


class BoxMlp(BoxNet):
    """Fully connected layers.

    in_features, width, depth, out_features: D, units of every hidden layer, number of weight matrices, K.
    relu: False gives a deep linear network. bias: whether layers have one. init: see ``initialise``.
    seeds: one replica for each; its initial weights depend on its own seed alone.
    Raises ValueError for a depth below 1 or an unknown init.
    """

    def __init__(self, in_features: int, width: int, depth: int, out_features: int, relu: bool = True,
                 bias: bool = True, init: str = "kaiming", seeds: int | Sequence[int] = 0):
        if depth < 1:
            raise ValueError(f"model.depth is {depth}; a network has at least one matrix of weights")
        seeds = [seeds] if isinstance(seeds, int) else list(seeds)
        widths = [in_features, *[width] * (depth - 1), out_features]
        pairs = zip(widths[:-1], widths[1:], strict=True)
        super().__init__([[ReplicaLinear(len(seeds), *pair, bias=bias)] for pair in pairs], relu)
        initialise(self, init, seeds)
