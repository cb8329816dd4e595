"""Points from a standard normal distribution, labelled by the sign of a random linear function of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from data.per_seed import Drawn, PerSeedData

TEACHER = 0x7EAC  # keeps these draws apart from others made from the same seed


class GaussianTeacher(PerSeedData):
    """x ~ N(0, I) in ``dim`` dimensions, y = sign(w x) in {-1, 1} with w ~ N(0, I); both drawn for each seed.

    train_size, test_size: points for each seed. Other arguments: see PerSeedData.
    """

    def __init__(self, dim: int, train_size: int, test_size: int, seed: int | Sequence[int] = 0, workers: int = 0):
        super().__init__(train_size, test_size, seed, workers)
        self.dim = dim

    def draw(self, seed: int) -> Drawn:
        """Training points come first, so that ``test_size`` does not change them."""
        rng = np.random.default_rng((seed, TEACHER))
        teacher, x = rng.standard_normal(self.dim), rng.standard_normal((self.train_size + self.test_size, self.dim))
        inputs, targets = torch.from_numpy(x), torch.from_numpy(np.where(x @ teacher >= 0, 1.0, -1.0))
        n = self.train_size
        return Drawn(inputs[:n], targets[:n], inputs[n:], targets[n:])
