"""Gaussian integrals with break points: nodes for the limit's expectations, and the error of a linear classifier.

The label's law jumps and the probability of keeping a sample has corners; a rule that ignores them is off by 1e-3. Here
they are ends of panels of a composite Gauss-Legendre rule. All that is integrated stays the same when every Gaussian
changes sign together with the label, so that half of the true direction's range is enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from data.gaussian_logistic import LabelLaw
from experiments.data_selection.selection import LARGEST_LOGIT, log_score

REACH = 6.5  # standard deviations; beyond them lies 1e-10 of the mass
WIDTH, ORDER = 0.25, 4  # of a Gauss-Legendre panel
NOISE_NODES, SURROGATE_NODES = 40, 24  # of Gauss-Hermite rules
FINE = tuple(2.0**-power for power in range(3, 11))  # breaks near 0, where a good classifier's answer turns


@dataclass(frozen=True)
class Nodes:
    """Where the limit's expectations are evaluated; the first six arrays share one shape.

    direction, surrogate: the Gaussians along the truth and along the surrogate's other part. weight: they sum to 1.
    kept: the probability of keeping. loss_weight: of a kept sample. label: P(y = 1). noise, noise_weight: the third
    Gaussian, independent of these.
    """

    direction: np.ndarray
    surrogate: np.ndarray
    weight: np.ndarray
    kept: np.ndarray
    loss_weight: np.ndarray
    label: np.ndarray
    noise: np.ndarray
    noise_weight: np.ndarray


@dataclass(frozen=True)
class Limit:
    """A selection scheme in the limit of N and p to infinity with N / p = ratio.

    law, norm: of the labels and the true direction's length. along, across: the surrogate's part in the true direction
    and its other part. hardness: the score's exponent. reweighted: kept samples weigh 1 / probability instead of 1.
    """

    ratio: float
    law: LabelLaw
    norm: float
    along: float
    across: float
    hardness: float
    reweighted: bool

    def nodes(self, share: float) -> Nodes:
        """The nodes for a share of samples kept."""
        scale = keeping_scale(self.hardness, math.hypot(self.along, self.across), share)
        breaks = [jump / self.norm for jump in self.law.jumps]
        if self.across == 0:
            breaks += [logit / self.along for logit in corners(self.hardness, scale)]
        direction, weight = half_line(breaks)
        surrogate = np.zeros_like(direction)
        if self.across:
            rule, rule_weight = hermite(SURROGATE_NODES)
            surrogate, weight = np.tile(rule, len(direction)), np.outer(weight, rule_weight).ravel()
            direction = np.repeat(direction, len(rule))
        kept = keeping(self.along * direction + self.across * surrogate, self.hardness, scale)
        loss_weight = 1 / kept if self.reweighted else np.ones_like(kept)
        label = self.law.probability(self.norm * direction)
        return Nodes(direction, surrogate, weight, kept, loss_weight, label, *hermite(NOISE_NODES))


def panels(edges: Iterable[float]) -> tuple[np.ndarray, np.ndarray]:
    """Composite Gauss-Legendre nodes between sorted edges, and weights that include the standard normal density."""
    rule, rule_weight = np.polynomial.legendre.leggauss(ORDER)
    ends = list(edges)
    cuts = [np.linspace(low, high, math.ceil((high - low) / WIDTH - 1e-9) + 1)
            for low, high in zip(ends, ends[1:], strict=False)]
    low, high = (np.concatenate([cut[part] for cut in cuts])[:, None] for part in (slice(None, -1), slice(1, None)))
    nodes = low + (high - low) * (rule + 1) / 2
    weights = (high - low) / 2 * rule_weight * np.exp(-nodes**2 / 2) / math.sqrt(2 * math.pi)
    return nodes.ravel(), weights.ravel()


def half_line(breaks: Iterable[float]) -> tuple[np.ndarray, np.ndarray]:
    """Nodes on the positive half, with weights that sum to 1 and break points as ends of panels."""
    inside = {round(float(place), 12) for place in breaks if 0 < place < REACH}
    nodes, weights = panels(sorted({0.0, REACH, *inside}))
    return nodes, 2 * weights


def hermite(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Hermite nodes and weights for the standard normal distribution."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


def keeping(logits: np.ndarray, hardness: float, scale: float) -> np.ndarray:
    """min(c * score, 1) at a surrogate's logits; scale is log c."""
    return np.exp(np.minimum(log_score(torch.from_numpy(logits), hardness).numpy() + scale, 0))


def corners(hardness: float, scale: float) -> list[float]:
    """Positive logits at which the probability of keeping is not smooth: the clipping, and where it reaches 1."""
    if hardness == 0 or math.isinf(scale):
        return []
    score = math.exp(-scale / hardness)  # p (1 - p) where c * score = 1
    if score >= 0.25:
        return [LARGEST_LOGIT]
    p = (1 - math.sqrt(1 - 4 * score)) / 2
    reached = math.log1p(-p) - math.log(p) if p > 0 else math.inf
    return [LARGEST_LOGIT, reached] if reached < LARGEST_LOGIT else [LARGEST_LOGIT]


def keeping_scale(hardness: float, deviation: float, share: float) -> float:
    """log c such that min(c * score, 1) has mean ``share`` over logits N(0, deviation^2); infinite for share 1."""
    from scipy.optimize import brentq

    if share >= 1:
        return math.inf
    if hardness == 0:
        return math.log(share)

    def excess(scale: float) -> float:
        nodes, weights = half_line([logit / deviation for logit in corners(hardness, scale)])
        return float(weights @ keeping(deviation * nodes, hardness, scale)) - share

    widest = 1 + abs(hardness) * (LARGEST_LOGIT + 2)  # no log score is larger
    return brentq(excess, math.log(share) - widest, widest, xtol=1e-14, rtol=1e-14)


def misclassification(law: LabelLaw, norm: float, cosine: Tensor) -> Tensor:
    """Test error of a linear classifier, exactly (the paper's equation 5.5; P.5).

    cosine: its part along the true direction divided by the norm of the rest, any shape; the classifier says 1 where its
    logit is positive.
    """
    nodes, weights = half_line([*(jump / norm for jump in law.jumps), *FINE])
    gain = torch.from_numpy(weights * (2 * law.probability(norm * nodes) - 1)).to(cosine)
    return 0.5 - 0.5 * (torch.erf(cosine[..., None] * torch.from_numpy(nodes).to(cosine) / math.sqrt(2)) * gain).sum(-1)
