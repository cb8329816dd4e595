"""Which samples are kept: a score from a surrogate's logits, a probability of keeping each, independent draws.

With p = sigmoid(z) the score is [p (1 - p)]^hardness: positive exponents keep hard samples, negative ones easy samples, 0
keeps at random. A sample is kept with probability min(c * score, 1), c such that the expected number is the wanted one.
Source: Kolossov et al. (arXiv 2309.14563), equation 6.1, and their code for the clipping of logits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

LARGEST_LOGIT = 10.0
DRAW = 0x5E1  # purpose of the generator behind the draws; the data's generators have others


def log_score(logits: Tensor, hardness: float) -> Tensor:
    """Logarithm of [p (1 - p)]^hardness for a surrogate's logits, which are clipped at +-10; same shape."""
    distance = logits.clamp(-LARGEST_LOGIT, LARGEST_LOGIT).abs()
    return -hardness * (distance + 2 * torch.log1p(torch.exp(-distance)))


def probabilities(log_scores: Tensor, share: float) -> Tensor:
    """min(c * score, 1) along the last axis, c such that they sum to ``share`` times its length; exact, by sorting.

    log_scores: (..., N). When the j largest are capped at 1, c is (share * N - j) / (sum of the others); j is the
    least for which no other exceeds 1.
    """
    count = log_scores.shape[-1]
    if share >= 1:
        return torch.ones_like(log_scores)
    scores = torch.exp(log_scores - log_scores.amax(-1, keepdim=True))
    ordered = scores.sort(-1, descending=True).values
    rest = ordered.flip(-1).cumsum(-1).flip(-1)
    capped = torch.arange(count, dtype=scores.dtype, device=scores.device)
    scale = (share * count - capped) / rest
    fits = (scale > 0) & (scale * ordered <= 1)
    first = fits.to(torch.uint8).argmax(-1, keepdim=True)
    return (scale.gather(-1, first) * scores).clamp(max=1)


def uniforms(seeds: Sequence[int], draws: int, count: int) -> Tensor:
    """Numbers in [0, 1) that decide what is kept, (S, D, N): the same for all shares and scores of a seed."""
    rows = [[np.random.default_rng((seed, draw, DRAW)).random(count) for draw in range(draws)] for seed in seeds]
    return torch.from_numpy(np.array(rows))


def tilted_directions(truth: Tensor, along: float, across: float, seeds: Sequence[int]) -> Tensor:
    """Surrogates (S, D, p) with ``along`` in the direction of the truth (S, D, p) and ``across`` in a random other one."""
    unit = truth / truth.norm(dim=-1, keepdim=True)
    rows = [[np.random.default_rng((seed, draw, DRAW, 1)).standard_normal(truth.shape[-1])
             for draw in range(truth.shape[1])] for seed in seeds]
    other = torch.from_numpy(np.array(rows)).to(truth)
    other = other - (other * unit).sum(-1, keepdim=True) * unit
    return along * unit + across * other / other.norm(dim=-1, keepdim=True)
