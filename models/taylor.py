"""Linear and quadratic models of any module: its outputs expanded in the weights around where they start.

With w0 the initial weights and D the change, f_lin = f(w0) + D' grad f(w0) and f_quad = f_lin + 1/2 D' H_f(w0) D, the
Hessian being that of the outputs and frozen at w0. Both directional derivatives come from forward mode inside forward
mode; gradients in D are ordinary reverse mode on top. Where the activation has a kink the second derivative is 0.
PyTorch's forward mode inside forward mode is wrong for layer and batch normalisation (pytorch issues 196700, 198017),
so their modules are refused; RMSNorm, GroupNorm and normalisations written from elementary operations are right.
Source: Zhu et al., arXiv 2205.11787, section 2. For two ReLU layers ``models.ntk_net`` has the closed form.

Letters: S seeds, each with its own data and initial weights; K kinds of model and C copies of each, which share both;
n points, P weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap

from models.ntk_net import as_kinds

ORDERS = {"net": None, "quadratic": 2, "linear": 1}
WRONG_TWICE = (nn.LayerNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
Outputs = Callable[[Tensor], Tensor]  # weights (P,) -> outputs (n,)
# PyTorch's forward mode compiles its rules with it on first use, which is nothing that a user could act on.
warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)


def expand_outputs(outputs: Outputs, start: Tensor, weights: Tensor, order: int | None) -> Tensor:
    """Outputs (n,) at ``weights`` (P,) by the expansion of an order (1 or 2) around ``start``; None: no expansion."""
    if order is None:
        return outputs(weights)
    change = (weights - start,)
    if order == 1:
        value, slope = jvp(outputs, (start,), change)
        return value + slope
    (value, slope), (_, curvature) = jvp(lambda point: jvp(outputs, (point,), change), (start,), change)
    return value + slope + curvature / 2


class TaylorModel(nn.Module):
    """A module (``net``) and its ``quadratic`` and ``linear`` models, with the interface of ``TwoLayerNet``.

    kind: which of them, one or several. module: makes the module, initialised from torch's global generator; it maps
    inputs (n, ...) to one output each and has no buffers. seeds: one set of initial weights for each; a seed's depend
    on itself alone. copies_at_once, points_at_once: how many copies of a seed are differentiated together, and how
    many points of a kernel; they bound the memory. Raises ValueError for an unknown kind and for a submodule whose
    second derivative PyTorch gets wrong.
    """

    def __init__(self, kind: str | Sequence[str], module: Callable[[], nn.Module], seeds: int | Sequence[int] = 0,
                 copies_at_once: int = 16, points_at_once: int = 64):
        super().__init__()
        self.kinds, self.copies_at_once, self.points_at_once = as_kinds(kind), copies_at_once, points_at_once
        modules = [build_seeded(module, seed) for seed in ([seeds] if isinstance(seeds, int) else seeds)]
        refuse_wrong_derivatives(modules[0])
        self.shapes = {name: value.shape for name, value in modules[0].named_parameters()}
        vectors = [nn.utils.parameters_to_vector(one.parameters()).detach() for one in modules]
        self.register_buffer("start", torch.stack(vectors))
        self._form = (modules[0].requires_grad_(False),)  # a form to call; in a tuple, as its own weights do not count
        self.expand(1)

    def expand(self, copies: int) -> None:
        """Give every seed and kind so many copies of the initial weights, (S, K, C, P)."""
        weights = self.start[:, None, None].repeat(1, len(self.kinds), copies, 1)
        self.weights = nn.Parameter(weights, requires_grad=False)

    def features(self, x: Tensor) -> list[Tensor]:
        """What the other methods need of inputs (S, n, ...): the inputs of each seed."""
        return list(x)

    def outputs(self, features: list[Tensor]) -> Tensor:
        """f of every copy at every point (S, K, C, n)."""
        return self._collect(self._outputs, features)

    def losses(self, features: list[Tensor], y: Tensor, alive: Tensor) -> Tensor:
        """L = 1/2 sum_i (f(x_i) - y_i)^2 of every copy (S, K, C), with its gradient put into ``weights.grad``.

        y: (S, n); alive: (S, K, C), the others get loss and gradient zero.
        """
        self.weights.grad = torch.zeros_like(self.weights)
        losses = y.new_zeros(alive.shape)
        for s, k, rows in self._visit(alive):
            losses[s, k, rows], self.weights.grad[s, k, rows] = self._differentiate(
                lambda outputs, s=s: 0.5 * (outputs - y[s]).square().sum(-1),
                s, self.kinds[k], features[s], self.weights[s, k, rows],
            )
        return losses

    def kernel(self, features: list[Tensor]) -> Tensor:
        """Tangent kernels of every copy (S, K, C, n, n): inner products of the outputs' gradients."""
        return self._collect(
            lambda s, kind, x, rows: torch.stack([self._kernel(s, kind, x, weights) for weights in rows]), features
        )

    def kernel_along(self, features: list[Tensor], directions: Tensor) -> Tensor:
        """p K p of every copy (S, K, C, q) for q directions p of each seed (S, q, n): the length of p's pull-back."""
        def lengths(s: int, kind: str, x: Tensor, rows: Tensor) -> Tensor:
            pulled = [self._differentiate(lambda outputs, p=p: outputs @ p, s, kind, x, rows)[1] for p in directions[s]]
            return torch.stack([gradient.square().sum(-1) for gradient in pulled], -1)

        return self._collect(lengths, features)

    def initial_kernel(self, features: list[Tensor]) -> Tensor:
        """Tangent kernel of the initial weights, which all kinds share (S, n, n)."""
        return torch.stack([self._kernel(s, "net", x, self.start[s]) for s, x in enumerate(features)])

    def _visit(self, alive: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """Seed and kind number with at most ``copies_at_once`` of the copies alive."""
        for s in range(alive.shape[0]):
            for k in range(alive.shape[1]):
                chosen = alive[s, k].nonzero()[:, 0]
                yield from ((s, k, rows) for rows in chosen.split(self.copies_at_once) if len(rows))

    def _collect(self, function: Callable[[int, str, Tensor, Tensor], Tensor], features: list[Tensor]) -> Tensor:
        """``function(seed number, kind, inputs, weights of some copies)`` for all copies: (S, K, C, ...)."""
        return torch.stack([
            torch.stack([
                torch.cat([function(s, kind, x, rows) for rows in self.weights[s, k].split(self.copies_at_once)])
                for k, kind in enumerate(self.kinds)
            ]) for s, x in enumerate(features)
        ])

    def _differentiate(self, scalar: Callable[[Tensor], Tensor], s: int, kind: str, x: Tensor,
                       rows: Tensor) -> tuple[Tensor, Tensor]:
        """A number for each copy made from its outputs (C,), and its gradient in the copy's weights (C, P)."""
        with torch.enable_grad():
            weights = rows.detach().requires_grad_()
            values = scalar(self._outputs(s, kind, x, weights))
            (gradient,) = torch.autograd.grad(values.sum(), weights)
        return values.detach(), gradient

    def _kernel(self, s: int, kind: str, x: Tensor, weights: Tensor) -> Tensor:
        def output(vector: Tensor, point: Tensor) -> Tensor:
            return self._expanded(s, kind, point[None], vector)[0]

        rows = vmap(grad(output), in_dims=(None, 0), chunk_size=self.points_at_once)(weights, x)
        return rows @ rows.mT

    def _outputs(self, s: int, kind: str, x: Tensor, weights: Tensor) -> Tensor:
        return vmap(lambda vector: self._expanded(s, kind, x, vector))(weights)

    def _expanded(self, s: int, kind: str, x: Tensor, vector: Tensor) -> Tensor:
        def call(point: Tensor) -> Tensor:
            return functional_call(self._form[0], self._unflatten(point), (x,)).flatten()

        return expand_outputs(call, self.start[s], vector, ORDERS[kind])

    def _unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        parts = vector.split([shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}


def refuse_wrong_derivatives(module: nn.Module) -> None:
    """Raises ValueError naming a submodule whose second forward derivative is known to be wrong in PyTorch."""
    for name, part in module.named_modules():
        if isinstance(part, WRONG_TWICE):
            raise ValueError(
                f"model.module: PyTorch's second forward derivative of {type(part).__name__} ('{name}') is wrong; write"
                " it from elementary operations, or use RMSNorm or GroupNorm"
            )


def build_seeded(module: Callable[[], nn.Module], seed: int) -> nn.Module:
    """The module initialised from the seed alone, the global generator left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return module()
