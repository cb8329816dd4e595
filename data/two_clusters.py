"""Two groups of numbers, N(centre, 1) labelled 1 and N(-centre, 1) labelled -1: a tangent kernel with two directions.

Source: Zhu et al., arXiv 2205.11787, section 3 and figure 3, with centre 2 and 128 points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from data.per_seed import Drawn, PerSeedData

CLUSTERS = 0x2C15  # keeps these draws apart from others made from the same seed


class TwoClusters(PerSeedData):
    """Inputs (n, 1), the first half of each split from the positive group. Other arguments: see PerSeedData."""

    def __init__(self, train_size: int, test_size: int, centre: float = 2.0, seed: int | Sequence[int] = 0,
                 workers: int = 0):
        super().__init__(train_size, test_size, seed, workers)
        self.centre = centre

    def draw(self, seed: int) -> Drawn:
        """Training points come first, so that ``test_size`` does not change them."""
        rng = np.random.default_rng((seed, CLUSTERS))
        parts = []
        for size in (self.train_size, self.test_size):
            y = np.where(np.arange(size) < size / 2, 1.0, -1.0)
            x = self.centre * y + rng.standard_normal(size)
            parts += [torch.from_numpy(x[:, None]), torch.from_numpy(y)]
        return Drawn(*parts)
