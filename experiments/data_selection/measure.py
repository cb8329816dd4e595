"""Test errors of the trained classifiers and of the theory; leading axes are seeds, kept shares and ridges."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from experiments.data_selection.objective import Subsampled
from experiments.data_selection.quadrature import misclassification
from experiments.measurement import Trained, measurement


@measurement("error", "kept", "residual")
def simulation(trained: Trained, tolerance: float) -> dict[str, np.ndarray]:
    """The test error averaged over a seed's draws, the share that was kept, and the largest gradient entry.

    The error is exact where the label's law is known, else the misclassified share of the test split. Raises
    RuntimeError when a fit has not converged to ``tolerance``, so that no such point is shown.
    """
    objective: Subsampled = trained.objective
    residual = objective.residual(trained.data)
    if not bool((residual < tolerance).all()):
        raise RuntimeError(f"a fit stopped at a gradient of {residual.max():.1e}, above {tolerance:g}: more steps needed")
    chances = objective.chances(trained.data)
    kept = (objective.sample_weights(chances.flatten(0, 1)) > 0).double().mean(-1).view(chances.shape[:3])
    shape = residual.shape
    return {
        "error": misclassified(objective, trained.data).mean(1).cpu().numpy(),
        "kept": kept[..., None].expand(shape).mean(1).cpu().numpy(),
        "residual": residual.amax(1).cpu().numpy(),
    }


@torch.no_grad()
def misclassified(objective: Subsampled, data) -> Tensor:
    """Misclassified share, (S, D, K, R)."""
    theta = objective.model.weight
    if data.test is None:
        unit = (data.truth / data.truth.norm(dim=-1, keepdim=True)).to(theta)
        along = torch.einsum("sdkrp,sdp->sdkr", theta, unit)
        across = (theta.square().sum(-1) - along.square()).clamp(min=0).sqrt()
        return misclassification(data.law, data.norm, along / across)
    logits = torch.einsum("sdkrp,sdnp->sdkrn", theta, data.test.x.to(theta))
    wrong = (logits > 0) != (data.test.y.to(theta)[:, :, None, None] > 0.5)
    return wrong.double().mean(-1)


@measurement("theory", "theory_below", "share_below", "deviation")
def theory(trained: Trained, ratio: float) -> dict[str, np.ndarray]:
    """The theory's error at each share and ridge, that at the next smaller share solved, and simulation minus theory.

    ratio: of the theory; 0 where the run has no phase ``theory``, and every value is NaN then.
    """
    objective: Subsampled = trained.objective
    error = misclassified(objective, trained.data).mean(1).cpu().numpy()
    if not ratio:
        return dict.fromkeys(theory.metric_names, np.full(error.shape, np.nan))
    lines = trained.load_phase("theory")
    here, below, there = (np.stack([np.broadcast_to(part, len(lines.ridge)) for part in parts])
                          for parts in zip(*map(lines.at, objective.kept), strict=True))
    return {"theory": np.broadcast_to(here, error.shape), "theory_below": np.broadcast_to(there, error.shape),
            "share_below": np.broadcast_to(below, error.shape), "deviation": error - here}
