"""Gaussian points in a random subspace, x = U e with e ~ N(0, I): what a linear autoencoder can keep whole.

Source: Mao et al. (ICLR 2024, arXiv 2306.10426), the embedding experiment of section 5: d = 100, k = 40, N = 1000.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from data.per_seed import Drawn, PerSeedData

SUBSPACE, POINTS = 0x10A4, 0x10A5  # keep these draws apart from others made from the same seed


class LowRankGaussian(PerSeedData):
    """Points of dimension ``dim`` in a subspace of dimension ``rank``; the targets are their coordinates e in it.

    train_size, test_size: points of one seed, from one subspace. seed, workers: see PerSeedData.
    Raises ValueError for a rank above the dimension.
    """

    def __init__(self, dim: int, rank: int, train_size: int, test_size: int, seed: int | Sequence[int] = 0,
                 workers: int = 0):
        super().__init__(train_size, test_size, seed, workers)
        if not 1 <= rank <= dim:
            raise ValueError(f"data.rank={rank}: give 1 to data.dim={dim}")
        self.dim, self.rank = dim, rank

    def draw(self, seed: int) -> Drawn:
        """An orthonormal basis, the nearest to a Gaussian matrix, and Gaussian coordinates of all points."""
        gaussian = np.random.default_rng((seed, SUBSPACE)).standard_normal((self.dim, self.rank))
        left, _, right = np.linalg.svd(gaussian, full_matrices=False)
        codes = np.random.default_rng((seed, POINTS)).standard_normal((self.train_size + self.test_size, self.rank))
        points, codes = torch.from_numpy(codes @ (left @ right).T), torch.from_numpy(codes)
        n = self.train_size
        return Drawn(points[:n], codes[:n], points[n:], codes[n:])
