"""Deep linear autoencoders of several widths, side by side: x -> W_2 W_1 x without biases.

Source: Mao et al. (ICLR 2024, arXiv 2306.10426), the embedding experiment of section 5.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from models.box_mlp import BoxMlp


class LinearAutoencoders(nn.ModuleList):
    """One network for each width, in order, each with one replica for each seed.

    dim: numbers in one input. widths: hidden units. init, seeds: see BoxMlp.
    """

    def __init__(self, dim: int, widths: Sequence[int], init: str = "default", seeds: int | Sequence[int] = 0):
        super().__init__(
            BoxMlp(dim, width, 2, dim, relu=False, bias=False, init=init, seeds=seeds) for width in widths
        )
        self.dim, self.widths = dim, list(widths)
