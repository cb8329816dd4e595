"""The saddle point behind a theory line: four equations in four unknowns, solved along the shares kept.

The limit's error is that of the saddle of

    L = ridge / 2 (a0^2 + as^2 + a^2) - mu a^2 / (2 ratio) + E[kept * min_v (w loss(v, y) + mu / 2 (v - c)^2)],

a minimum over (a0, as, a), in which L maximised over mu is convex, and a maximum over mu, in which L is concave. An
interior stationary point is therefore the solution. Two spurious branches (a to 0 with mu to infinity, a to infinity
with mu to 0) solve the plain equations in their limits; they are shut out by dividing the third equation by a and the
fourth by a^2 / ratio. Next to a known solution Newton's method on all four converges in about five evaluations; far
from one, convex descent in (a0, as, a) with mu eliminated finds the way.
Source: Kolossov et al. (arXiv 2309.14563), theorem 4 and equations 5.3 to 5.5, P.3 to P.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from experiments.data_selection.prox import expectations
from experiments.data_selection.quadrature import Limit, Nodes

ACCEPTED = 1e-10  # largest residual of a solution
WANTED = 1e-12
START = (1.0, 0.0, 0.0, -1.0)


class SolveFailed(RuntimeError):
    """No solution with residuals below 1e-10 was found."""


@dataclass(frozen=True)
class Solution:
    """unknowns: a0, as, log a, log mu. residual: the largest of the scaled equations; proximal: of an inner problem."""

    unknowns: np.ndarray
    residual: float
    proximal: float

    @property
    def cosine(self) -> float:
        """The classifier's part along the truth divided by the norm of the rest."""
        return self.unknowns[0] / math.hypot(self.unknowns[1], math.exp(self.unknowns[2]))


@dataclass(frozen=True)
class _State:
    """The equations at one point: values and Jacobian in the unknowns, scaled; the plain Hessian of L."""

    unknowns: np.ndarray
    values: np.ndarray
    jacobian: np.ndarray
    hessian: np.ndarray
    proximal: float


class Equations:
    """The stationarity of L for one share and one ridge."""

    def __init__(self, limit: Limit, nodes: Nodes, ridge: float):
        self.limit, self.ridge = limit, ridge
        self.arrays = tuple(vars(nodes).values())
        self.active = np.array([0, 2, 3] if limit.across == 0 else [0, 1, 2, 3])  # a perfect surrogate has no as

    def at(self, unknowns: np.ndarray) -> _State:
        """Evaluate at (a0, as, log a, log mu)."""
        a0, a_s, (a, mu) = unknowns[0], unknowns[1], np.exp(unknowns[2:])
        gradient, hessian, proximal = expectations(a0, a_s, a, mu, *self.arrays)
        ratio = self.limit.ratio
        gradient += np.array([self.ridge * a0, self.ridge * a_s, (self.ridge - mu / ratio) * a, -a * a / (2 * ratio)])
        hessian[:3, :3] += np.diag([self.ridge, self.ridge, self.ridge - mu / ratio])
        hessian[2, 3] -= a / ratio
        hessian[3, 2] -= a / ratio
        scale = np.array([1, 1, 1 / a, ratio / a**2])
        values, jacobian = gradient * scale, hessian * scale[:, None] * np.array([1, 1, a, mu])
        jacobian[2, 2] -= values[2]
        jacobian[3, 2] -= 2 * values[3]
        return _State(unknowns, values, jacobian, hessian, proximal)

    def solve(self, start: np.ndarray | None = None) -> Solution:
        """The solution; start: one nearby, such as that of the next larger share. Raises SolveFailed."""
        found = None if start is None else self._newton(start)
        point, rough = np.array(START) if start is None else start, 0.1
        while found is None and rough > WANTED:
            point, rough = self._descend(point, rough), rough / 10
            found = self._newton(point)
        if found is None or not (self._residual(found) < ACCEPTED and found.proximal < ACCEPTED):
            raise SolveFailed(f"no saddle point at ridge {self.ridge:g}, ratio {self.limit.ratio:g}: residual "
                              f"{self._residual(found) if found else math.nan:.1e}, proximal "
                              f"{found.proximal if found else math.nan:.1e}")
        return Solution(found.unknowns, self._residual(found), found.proximal)

    def _residual(self, state: _State) -> float:
        return float(np.abs(state.values[self.active]).max())

    def _newton(self, start: np.ndarray) -> _State | None:
        """Newton's method on all equations; None once a step does not reduce the residual."""
        state, size = self.at(start), np.ix_(self.active, self.active)
        for _ in range(30):
            if self._residual(state) < WANTED:
                return state
            step = np.zeros(4)
            step[self.active] = np.linalg.solve(state.jacobian[size], -state.values[self.active])
            length = min(1.0, 0.7 / np.abs(step[2:]).max())  # at most a factor two in a and mu
            trial = self.at(state.unknowns + length * step)
            if not self._residual(trial) < self._residual(state) * (1 - length / 2):
                return state if self._residual(state) < ACCEPTED else None
            state = trial
        return None

    def _maximised(self, start: np.ndarray) -> _State:
        """The state after maximising L over mu, by Newton's method on log mu with a bracket."""
        low, high, unknowns = -60.0, 60.0, start.copy()
        for _ in range(100):
            state = self.at(unknowns)
            slope = state.values[3]
            if abs(slope) < 1e-8:
                break
            low, high = (unknowns[3], high) if slope > 0 else (low, unknowns[3])
            new = unknowns[3] - np.clip(slope / state.jacobian[3, 3], -2, 2)
            unknowns = np.append(unknowns[:3], new if low < new < high else (low + high) / 2)
        return state

    def _descend(self, start: np.ndarray, rough: float) -> np.ndarray:
        """Newton descent on the convex function max over mu of L, until its gradient is below ``rough`` times ridge."""
        state, size = self._maximised(start), self.active[:-1]
        for _ in range(200):
            a = math.exp(state.unknowns[2])
            gradient = state.values[:3] * np.array([1, 1, a])
            if np.abs(gradient[size]).max() < rough * self.ridge:
                break
            curvature = state.hessian[:3, :3] - np.outer(state.hessian[:3, 3], state.hessian[3, :3]) / state.hessian[3, 3]
            step = np.zeros(3)
            step[size] = np.linalg.solve(curvature[np.ix_(size, size)], -gradient[size])
            length = 1.0 if step[2] >= 0 else min(1.0, 0.7 * a / -step[2])  # a stays positive
            state = self._search(state, step, length, gradient @ step)
        return state.unknowns

    def _search(self, state: _State, step: np.ndarray, length: float, slope: float) -> _State:
        """Halve the step until the function no longer rises steeply at its end."""
        a = math.exp(state.unknowns[2])
        for _ in range(60):
            ends = state.unknowns[:2] + length * step[:2]
            trial = self._maximised(np.array([*ends, math.log(a + length * step[2]), state.unknowns[3]]))
            if (trial.values[:3] * np.array([1, 1, math.exp(trial.unknowns[2])])) @ step < -slope / 2:
                break
            length /= 2
        return trial
