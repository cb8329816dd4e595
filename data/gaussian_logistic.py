"""Gaussian inputs whose label depends on one direction, through a logistic law or one that no logistic model has.

x ~ N(0, I_p), a random direction theta of length ``norm``, P(y = 1 | x) = law(<theta, x>), y in {0, 1}.
Source: Kolossov, Montanari and Tandon (arXiv 2309.14563) and their code: ``misspec`` is 0.95 above zero, ``misspec2`` is
0.95 on (0, 0.5) and 0.7 above. All laws have law(-z) = 1 - law(z).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from data.module import Split, Splits
from data.sets import SeededSets, stack

DIRECTION, INPUTS, LABELS, POOL_INPUTS, POOL_LABELS = range(0x6A01, 0x6A06)  # purposes of generators


@dataclass(frozen=True)
class LabelLaw:
    """P(y = 1) as a function of the logit z, with law(-z) = 1 - law(z).

    jumps: the positive z at which it jumps; levels: its values between 0, the jumps and infinity. Without levels it is
    the logistic function.
    """

    jumps: tuple[float, ...] = ()
    levels: tuple[float, ...] = ()

    def probability(self, z: np.ndarray) -> np.ndarray:
        """P(y = 1) at logits z, any shape."""
        if not self.levels:
            return 1 / (1 + np.exp(-z))
        above = np.array(self.levels)[np.searchsorted(self.jumps, np.abs(z), side="right")]
        return np.where(z >= 0, above, 1 - above)


LAWS = {"logistic": LabelLaw(), "misspec": LabelLaw((), (0.95,)), "misspec2": LabelLaw((0.5,), (0.95, 0.7))}


def find_law(name: str) -> LabelLaw:
    """The law of this name. Raises ValueError naming the known ones."""
    if name not in LAWS:
        raise ValueError(f"labels: {name!r} is not one of {', '.join(LAWS)}")
    return LAWS[name]


class GaussianLogistic(SeededSets):
    """N = ``size`` training samples of p = ``features`` numbers for each seed and draw, and a pool of ``pool``.

    labels: the name of a law; norm: the length of theta. Inputs, label noise and directions come from generators of
    their own, so that runs with different laws have the same inputs and the same noise. ``truth`` (S, D, p) is theta.
    There is no test split: the error of a linear classifier has a formula. Other arguments: see SeededSets.
    """

    def __init__(self, features: int = 200, size: int = 458, pool: int = 0, labels: str = "misspec", norm: float = 5.0,
                 draws: int = 1, part: str = "train", seed: int | Sequence[int] = 0, workers: int = 0):
        super().__init__(seed, draws, part, workers)
        if min(features, size) < 1 or pool < 0:
            raise ValueError(f"data: features={features}, size={size}, pool={pool}: give positive sizes")
        self.features, self.size, self.pool, self.norm = features, size, pool, norm
        self.law = find_law(labels)
        self.truth: Tensor | None = None

    def load(self) -> Splits:
        """Draw everything: a function of the seeds and the settings alone."""
        directions = [[generator.standard_normal(self.features) for generator in row]
                      for row in self.generators(DIRECTION)]
        truth = np.array(directions)
        truth *= self.norm / np.linalg.norm(truth, axis=-1, keepdims=True)
        self.truth = torch.from_numpy(truth)
        pool = self._draw(truth, self.pool, POOL_INPUTS, POOL_LABELS) if self.pool else None
        return self.chosen(self._draw(truth, self.size, INPUTS, LABELS), pool, None)

    def _draw(self, truth: np.ndarray, size: int, inputs: int, labels: int) -> Split:
        def one(direction: np.ndarray, of_inputs: np.random.Generator, of_labels: np.random.Generator):
            x = of_inputs.standard_normal((size, self.features))
            return x, of_labels.random(size) < self.law.probability(x @ direction)

        return stack([[one(*each) for each in zip(*rows, strict=True)]
                      for rows in zip(truth, self.generators(inputs), self.generators(labels), strict=True)])
