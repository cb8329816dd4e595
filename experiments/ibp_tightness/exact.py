"""The exact range of a small ReLU network over a box, by mixed-integer programming, and its linear relaxation.

Every ReLU h = max(z, 0) with z in [l, u] becomes h >= 0, h >= z, h <= u a, h <= z - l (1 - a) with a in {0, 1}
(Tjeng et al., 2019, arXiv 1711.07356); with a in [0, 1] the same constraints are the triangle relaxation, which no line
of CROWN can beat. Solved by HiGHS through scipy in float64, one replica and one point at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from experiments.ibp_tightness.certify import unit_intervals
from models.box_mlp import BoxMlp
from models.box_net import Box


@dataclass(frozen=True)
class Program:
    """One multilayer perceptron over one box.

    weights, biases: of each layer, (out, in) and (out,). lower, upper: ends of the box of inputs (D,).
    units: ends of the interval of every ReLU, for each layer but the last.
    """

    weights: Sequence[np.ndarray]
    biases: Sequence[np.ndarray]
    lower: np.ndarray
    upper: np.ndarray
    units: Sequence[tuple[np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, net: BoxMlp, box: Box, replica: int = 0, point: int = 0) -> Program:
        """The program of one replica of a network over the box (R, B, D) of one point."""
        net, box = copy.deepcopy(net).double(), Box(*(part.double() for part in box))
        layers = [stage[-1] for stage in net.stages]
        zero = torch.zeros(1)
        return cls(
            [layer.weight[replica].detach().numpy() for layer in layers],
            [(zero if layer.bias is None else layer.bias[replica, 0]).detach().numpy() for layer in layers],
            *(end[replica, point].numpy() for end in box.ends),
            [tuple(end[replica, point].numpy() for end in ends) for ends in unit_intervals(net, box, "crown")],
        )

    def maximum(self, row: np.ndarray, integral: bool = True) -> float:
        """The largest value of ``row`` (K,) times the outputs; an upper bound of it with ``integral=False``.

        Raises RuntimeError when the solver gives up.
        """
        from scipy.optimize import Bounds, milp

        counts = [len(self.lower), *(len(low) for low, _ in self.units)]
        values, switches = sum(counts), sum(counts[1:])
        cost = np.zeros(values + switches)
        cost[values - counts[-1] : values] = -(row @ self.weights[-1])
        kinds = np.concatenate([np.zeros(values), np.full(switches, float(integral))])
        found = milp(cost, constraints=self._constraints(counts), integrality=kinds, bounds=Bounds(*self._bounds()))
        if not found.success:
            raise RuntimeError(f"the solver stopped: {found.message}")
        return float(-found.fun + row @ np.broadcast_to(self.biases[-1], row.shape))

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the inputs, the units after the ReLU, and the switches, which stable units fix."""
        highs = [high.clip(min=0) for _, high in self.units]
        on = [(low >= 0).astype(float) for low, _ in self.units]
        may = [((high > 0) | (low >= 0)).astype(float) for low, high in self.units]
        zeros = [np.zeros(len(high)) for high in highs]
        return np.concatenate([self.lower, *zeros, *on]), np.concatenate([self.upper, *highs, *may])

    def _constraints(self, counts: Sequence[int]) -> list:
        """For each layer h - z >= 0, h - u a <= 0 and h - z - l a <= -l, with z = W h' + b."""
        from scipy.optimize import LinearConstraint
        from scipy.sparse import lil_matrix

        total, values = 2 * sum(counts) - counts[0], sum(counts)
        found, before = [], 0
        for place, (low, high) in enumerate(self.units):
            here, count = before + counts[place], counts[place + 1]
            own, switch = range(here, here + count), range(values + here - counts[0], values + here - counts[0] + count)
            unit = lil_matrix((count, total))
            unit[np.arange(count), own] = 1.0
            shifted, ceiling, floor = unit.copy(), unit.copy(), None
            shifted[:, before:here] = -self.weights[place]
            ceiling[np.arange(count), switch] = -high
            floor = shifted.copy()
            floor[np.arange(count), switch] = -low
            bias = np.broadcast_to(self.biases[place], (count,))
            found += [LinearConstraint(shifted.tocsr(), bias, np.inf), LinearConstraint(ceiling.tocsr(), -np.inf, 0.0),
                      LinearConstraint(floor.tocsr(), -np.inf, bias - low)]
            before = here
        return found


def exact_tightness(net: BoxMlp, box: Box, replica: int = 0, point: int = 0) -> np.ndarray:
    """Exact over interval-bound radius of every output of one replica at one point: (K,), in [0, 1]."""
    program = Program.of(net, box, replica, point)
    rows = np.eye(net.outputs)
    widths = np.array([program.maximum(row) + program.maximum(-row) for row in rows])
    return widths / 2 / net.boxes(box)[-1].radius[replica, point].detach().numpy()
