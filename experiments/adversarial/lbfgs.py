"""Box-constrained L-BFGS on many small problems at once.

The paper minimises one image at a time with a box-constrained L-BFGS. With small networks nearly all of that time is
call overhead, so here a whole batch of images advances together: every tensor has one row for each problem, and a row
leaves the batch when it has converged. The method is the two-metric projection of Bertsekas (1982): variables that
press against the box are held, the L-BFGS direction is computed for the free ones, and a step is projected back into
the box. ``scipy.optimize.minimize(method="L-BFGS-B")`` is the reference that the tests compare with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# (points (b, m), rows (b,)) -> values (b,), gradients (b, m): problem number rows[i] at points[i]
Problem = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Solver:
    """Settings of the minimiser; the tolerances are scipy's defaults.

    value_tolerance: a row stops when a step lowers its value by less than this share of max(|value|, 1).
    gradient_tolerance: a row stops when no coordinate of its projected gradient is larger.
    memory: number of stored steps. backtracks: halvings of a step before a row gives up.
    """

    max_iterations: int = 100
    memory: int = 10
    value_tolerance: float = 2.2e-9
    gradient_tolerance: float = 1e-5
    backtracks: int = 20

    def minimise(self, problem: Problem, start: Tensor, lower: float, upper: float) -> Tensor:
        """Minimisers (B, m) from ``start`` (B, m), all coordinates kept in [lower, upper]."""
        state = _State.at(problem, start.clamp(lower, upper))
        result = state.point.clone()
        for _ in range(self.max_iterations):
            state = self._step(problem, state, lower, upper)
            result[state.rows] = state.point
            state = state.keep(~self._converged(state, lower, upper))
            if not len(state.rows):
                break
        return result

    def _step(self, problem: Problem, state: _State, lower: float, upper: float) -> _State:
        held = ((state.point <= lower) & (state.gradient > 0)) | ((state.point >= upper) & (state.gradient < 0))
        direction = state.direction((~held).to(state.point.dtype))
        length = torch.ones_like(state.value) if len(state.steps) else _first_length(direction)
        point, value, gradient = state.point.clone(), state.value.clone(), state.gradient.clone()
        trying = torch.arange(len(value), device=value.device)
        for _ in range(self.backtracks):
            trial = (state.point[trying] + length[trying, None] * direction[trying]).clamp(lower, upper)
            values, gradients = problem(trial, state.rows[trying])
            slope = (state.gradient[trying] * (trial - state.point[trying])).sum(1)
            good = values <= state.value[trying] + 1e-4 * slope
            taken = trying[good]
            point[taken], value[taken], gradient[taken] = trial[good], values[good], gradients[good]
            trying = trying[~good]
            if not len(trying):
                break
            length[trying] *= 0.5
        return state.advance(point, value, gradient, self.memory)

    def _converged(self, state: _State, lower: float, upper: float) -> Tensor:
        scale = torch.maximum(state.value.abs(), state.before.abs()).clamp(min=1.0)
        stalled = state.before - state.value <= self.value_tolerance * scale
        projected = state.point - (state.point - state.gradient).clamp(lower, upper)
        return stalled | (projected.abs().amax(1) <= self.gradient_tolerance)


@dataclass(frozen=True)
class _State:
    """The rows still running: their numbers (b,), points and gradients (b, m), values now and one step ago (b,).

    steps, changes: the last k steps and the changes of the gradient along them (k, b, m), oldest first.
    """

    rows: Tensor
    point: Tensor
    value: Tensor
    before: Tensor
    gradient: Tensor
    steps: Tensor
    changes: Tensor

    @classmethod
    def at(cls, problem: Problem, point: Tensor) -> _State:
        rows = torch.arange(len(point), device=point.device)
        value, gradient = problem(point, rows)
        empty = point.new_empty(0, *point.shape)
        return cls(rows, point, value, value, gradient, empty, empty)

    def keep(self, running: Tensor) -> _State:
        if running.all():
            return self
        return _State(
            self.rows[running], self.point[running], self.value[running], self.before[running],
            self.gradient[running], self.steps[:, running], self.changes[:, running],
        )

    def advance(self, point: Tensor, value: Tensor, gradient: Tensor, memory: int) -> _State:
        steps = torch.cat([self.steps, (point - self.point)[None]])[-memory:]
        changes = torch.cat([self.changes, (gradient - self.gradient)[None]])[-memory:]
        return _State(self.rows, point, value, self.value, gradient, steps, changes)

    def direction(self, free: Tensor) -> Tensor:
        """The L-BFGS direction within the free variables (b, m); pairs without positive curvature there are skipped."""
        steps, changes = self.steps * free, self.changes * free
        curvature, size = (steps * changes).sum(2), (changes * changes).sum(2)
        usable = curvature > 1e-10 * size
        weight = torch.where(usable, 1 / curvature.where(usable, torch.ones_like(curvature)), 0.0)
        descent, shares = self.gradient * free, []
        for k in range(len(steps) - 1, -1, -1):
            share = weight[k] * (steps[k] * descent).sum(1)
            descent = torch.addcmul(descent, share[:, None], changes[k], value=-1)
            shares.append(share)
        descent = descent * _inverse_curvature(curvature, size, usable)[:, None]
        for k in range(len(steps)):
            share = shares[-1 - k] - weight[k] * (changes[k] * descent).sum(1)
            descent = torch.addcmul(descent, share[:, None], steps[k])
        return -descent


def _first_length(direction: Tensor) -> Tensor:
    return 1 / direction.norm(dim=1).clamp(min=1.0)


def _inverse_curvature(curvature: Tensor, size: Tensor, usable: Tensor) -> Tensor:
    """Scale of the initial matrix (b,): from the newest usable pair, one where there is none."""
    scale = torch.ones(curvature.shape[1], dtype=curvature.dtype, device=curvature.device)
    for k in range(len(curvature)):
        scale = torch.where(usable[k], curvature[k] / size[k].clamp(min=torch.finfo(size.dtype).tiny), scale)
    return scale
