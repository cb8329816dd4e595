"""The limit's inner problem and its expectations, compiled: a scalar minimum at each node, and sums over nodes.

At a node the trained classifier's logit is v = argmin w * loss(v, y) + mu / 2 * (v - c)^2 with the logistic loss and
c = a0 G0 + as Gs + a G. A plain Newton iteration cycles for small mu; this one keeps a bracket and bisects whenever the
residual does not halve. Source: Kolossov et al. (arXiv 2309.14563), equations 5.3, 5.4 and P.3 to P.5.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

STEPS = 200
ENOUGH = 1e-14  # residual of sigmoid(v) - y + (mu / w) (v - c)
LIGHTEST = 1e-16  # nodes of less weight are left out


@njit(cache=True)
def proximal_logit(centre: float, pull: float, label: int) -> tuple[float, float]:
    """The root v of sigmoid(v) - label + pull * (v - centre), pull > 0, and what is left of the equation there."""
    low, high = centre - (1 - label) / pull, centre + label / pull
    v, before = centre, math.inf
    for _ in range(STEPS):
        slope = 1 / (1 + math.exp(-v)) if v > -700 else 0.0
        left = slope - label + pull * (v - centre)
        if abs(left) <= ENOUGH:
            return v, left
        low, high = (low, v) if left > 0 else (v, high)
        new = v - left / (pull + slope * (1 - slope))
        if not low < new < high or abs(left) > before / 2:
            new = (low + high) / 2
        if new == v:
            return v, left
        v, before = new, abs(left)
    return v, left


@njit(cache=True)
def expectations(a0: float, a_s: float, a: float, mu: float, direction: np.ndarray, surrogate: np.ndarray,
                 weight: np.ndarray, kept: np.ndarray, loss_weight: np.ndarray, label: np.ndarray, noise: np.ndarray,
                 noise_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Gradient (4,) and Hessian (4, 4) of E[kept * min_v (w loss + mu / 2 (v - c)^2)] in (a0, a_s, a, mu).

    The arrays are those of ``Nodes``, in its order. Also returns the largest residual of a proximal equation.
    """
    gradient, hessian, worst, place = np.zeros(4), np.zeros((4, 4)), 0.0, np.zeros(3)
    for i in range(direction.size):
        place[0], place[1] = direction[i], surrogate[i]
        for j in range(noise.size):
            place[2] = noise[j]
            centre = a0 * direction[i] + a_s * surrogate[i] + a * noise[j]
            for y in range(2):
                mass = weight[i] * noise_weight[j] * (label[i] if y else 1 - label[i])
                if mass < LIGHTEST:
                    continue
                v, left = proximal_logit(centre, mu / loss_weight[i], y)
                worst = max(worst, abs(left))
                slope = 1 / (1 + math.exp(-v)) if v > -700 else 0.0
                curvature = loss_weight[i] * slope * (1 - slope)
                moved, mass = centre - v, mass * kept[i]
                stiffness = mass * curvature / (mu + curvature)
                for k in range(3):
                    gradient[k] += mass * mu * moved * place[k]
                    hessian[3, k] += stiffness * moved * place[k]
                    for m in range(k + 1):
                        hessian[k, m] += stiffness * mu * place[k] * place[m]
                gradient[3] += mass * moved * moved / 2
                hessian[3, 3] -= mass * moved * moved / (mu + curvature)
    for k in range(4):
        for m in range(k):
            hessian[m, k] = hessian[k, m]
    return gradient, hessian, worst
