"""The two-layer network in NTK parametrisation with its linear and quadratic models in closed form, many at once.

f(u, v; x) = m^-1/2 sum_j v_j relu(u_j x / sqrt(d)), u_j ~ N(0, I), v_j = +-1, no bias. relu is 1-homogeneous and the
Hessian's only block that is not zero couples u_j with v_j, so the second-order model around the initial weights is
the same network with its gates 1{u_j x > 0} frozen as they were at the start, and the first-order model is linear in
the change of u and v under those gates.
Source: Zhu et al., arXiv 2205.11787, sections 2 and 3; ``models.taylor`` is the same for any module.

Letters: S seeds, each with its own data and initial weights; K kinds of model and C copies of each, which share both;
n points, m units (the width), d inputs. Gradients are written out rather than taken by autograd, and seeds and kinds
are visited one by one, which keeps the (C, n, m) temporaries small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

KINDS = ("net", "quadratic", "linear")


class Start(NamedTuple):
    """What the initial weights of one seed make of its inputs x (n, d): gates and features (n, m), with v (m,)."""

    x: Tensor
    gates: Tensor
    hidden: Tensor
    v: Tensor


class Evaluation:
    """One kind of model of one seed at the weights u (C, m, d) and v (C, m) of some copies.

    hidden: the activations (C, n, m), under the current gates for ``net`` and under the initial ones otherwise.
    """

    def __init__(self, kind: str, start: Start, u: Tensor, v: Tensor):
        self.kind, self.start, self.u, self.v = kind, start, u, v
        self.width, self.in_features = u.shape[-2:]
        pre = start.x @ (u / self.in_features**0.5).mT
        self.hidden = pre.clamp_(min=0) if kind == "net" else pre.mul_(start.gates)

    def outputs(self) -> Tensor:
        """Outputs (C, n)."""
        if self.kind == "linear":
            return (self.hidden @ self.start.v + (self.v - self.start.v) @ self.start.hidden.mT) / self.width**0.5
        return (self.hidden @ self.v[..., None])[..., 0] / self.width**0.5

    def pull_back(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of sum_i cotangent_i f(x_i) in u (C, m, d) and v (C, m); cotangent (C, n)."""
        cotangent = cotangent / self.width**0.5
        through = torch.where(self.hidden > 0, cotangent[..., None], 0.0) if self.kind == "net" \
            else self.start.gates * cotangent[..., None]
        v, hidden = (self.start.v, self.start.hidden) if self.kind == "linear" else (self.v, self.hidden)
        by_unit = (through.mT @ self.start.x).mul_((v / self.in_features**0.5)[..., None])
        return by_unit, (cotangent[:, None] @ hidden)[:, 0]

    def kernel(self) -> Tensor:
        """Tangent kernels (C, n, n): inner products of the outputs' gradients in (u, v)."""
        linear = self.kind == "linear"
        hidden = self.start.hidden.expand_as(self.hidden) if linear else self.hidden
        gates = (hidden > 0).to(hidden.dtype) if self.kind == "net" else self.start.gates
        active = gates * (self.start.v.expand_as(self.v) if linear else self.v)[:, None]
        inputs = self.start.x @ self.start.x.mT / self.in_features
        return (hidden @ hidden.mT + active @ active.mT * inputs) / self.width


class TwoLayerNet(nn.Module):
    """The network itself (``net``) and its ``quadratic`` and ``linear`` models around the initial weights.

    kind: which of them, one or several. in_features, width: d and m. seeds: one set of initial weights for each; a
    seed's depend on itself alone. Raises ValueError for an unknown kind.
    """

    def __init__(self, kind: str | Sequence[str], in_features: int, width: int, seeds: int | Sequence[int] = 0):
        super().__init__()
        self.kinds, self.width = as_kinds(kind), width
        drawn = [draw_weights(width, in_features, seed) for seed in ([seeds] if isinstance(seeds, int) else seeds)]
        self.register_buffer("u_start", torch.stack([u for u, _ in drawn]))
        self.register_buffer("v_start", torch.stack([v for _, v in drawn]))
        self.expand(1)

    def expand(self, copies: int) -> None:
        """Give every seed and kind so many copies of the initial weights: u becomes (S, K, C, m, d), v (S, K, C, m)."""
        shape = (1, len(self.kinds), copies)
        self.u = nn.Parameter(self.u_start[:, None, None].repeat(*shape, 1, 1), requires_grad=False)
        self.v = nn.Parameter(self.v_start[:, None, None].repeat(*shape, 1), requires_grad=False)

    def features(self, x: Tensor) -> list[Start]:
        """What the other methods need of inputs (S, n, d), to be computed once for data that stay the same."""
        pre = x @ self.u_start.mT / x.shape[-1] ** 0.5
        return [Start(*parts) for parts in zip(x, (pre > 0).to(x.dtype), pre.clamp(min=0), self.v_start, strict=True)]

    def outputs(self, features: list[Start]) -> Tensor:
        """f of every copy at every point (S, K, C, n)."""
        return self._stack(evaluation.outputs() for _, _, evaluation in self._visit(features))

    def losses(self, features: list[Start], y: Tensor, alive: Tensor) -> Tensor:
        """L = 1/2 sum_i (f(x_i) - y_i)^2 of every copy (S, K, C), with its gradient put into ``u.grad``, ``v.grad``.

        y: (S, n); alive: (S, K, C), the others get loss and gradient zero.
        """
        if self.u.grad is None:
            self.u.grad, self.v.grad = torch.empty_like(self.u), torch.empty_like(self.v)
        losses = y.new_zeros(alive.shape)
        for at, rows, evaluation in self._visit(features, alive):
            residual = evaluation.outputs() - y[at[0]]
            losses[at][rows] = 0.5 * residual.square().sum(-1)
            self.u.grad[at][rows], self.v.grad[at][rows] = evaluation.pull_back(residual)
        self.u.grad[~alive], self.v.grad[~alive] = 0.0, 0.0
        return losses

    def kernel(self, features: list[Start]) -> Tensor:
        """Tangent kernels of every copy (S, K, C, n, n)."""
        return self._stack(evaluation.kernel() for _, _, evaluation in self._visit(features))

    def kernel_along(self, features: list[Start], directions: Tensor) -> Tensor:
        """p K p of every copy (S, K, C, q) for q directions p of each seed (S, q, n): the length of p's pull-back."""
        return self._stack(
            torch.stack([_length(evaluation.pull_back(p.expand(len(evaluation.v), -1))) for p in directions[at[0]]], -1)
            for at, _, evaluation in self._visit(features)
        )

    def initial_kernel(self, features: list[Start]) -> Tensor:
        """Tangent kernel of the initial weights, which all kinds share (S, n, n)."""
        return torch.cat([
            Evaluation("net", start, u[None], start.v[None]).kernel()
            for start, u in zip(features, self.u_start, strict=True)
        ])

    def _visit(
        self, features: list[Start], alive: Tensor | None = None
    ) -> Iterator[tuple[tuple[int, int], slice | Tensor, Evaluation]]:
        """Seed and kind number, which copies, and their evaluation; all copies, or those alive."""
        for s, start in enumerate(features):
            for k, kind in enumerate(self.kinds):
                rows = slice(None) if alive is None or alive[s, k].all() else alive[s, k].nonzero()[:, 0]
                yield (s, k), rows, Evaluation(kind, start, self.u[s, k][rows], self.v[s, k][rows])

    def _stack(self, parts: Iterator[Tensor]) -> Tensor:
        """One part for each seed and kind -> (S, K, *part)."""
        return torch.stack(list(parts)).unflatten(0, (-1, len(self.kinds)))


def _length(gradients: tuple[Tensor, Tensor]) -> Tensor:
    """Squared length (C,) of gradients in u (C, m, d) and v (C, m)."""
    return sum(part.flatten(1).square().sum(1) for part in gradients)


def as_kinds(kind: str | Sequence[str]) -> list[str]:
    """One or several kinds as a list. Raises ValueError for an unknown one."""
    kinds = [kind] if isinstance(kind, str) else list(kind)
    for name in kinds:
        if name not in KINDS:
            raise ValueError(f"model.kind is {name!r}; it must be one of {', '.join(KINDS)}")
    return kinds


def draw_weights(width: int, in_features: int, seed: int) -> tuple[Tensor, Tensor]:
    """u (m, d) standard normal and v (m,) uniform in {-1, 1}, float64, from the seed alone, on the default device."""
    device = torch.get_default_device()
    if device.type == "meta":  # shapes only
        return torch.empty(width, in_features, dtype=torch.float64), torch.empty(width, dtype=torch.float64)
    generator = torch.Generator("cpu").manual_seed(seed)
    u = torch.randn(width, in_features, generator=generator, dtype=torch.float64, device="cpu")
    signs = torch.randint(0, 2, (width,), generator=generator, device="cpu").to(torch.float64) * 2 - 1
    return u.to(device), signs.to(device)
