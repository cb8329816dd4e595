"""What one fit gives for each seed, kind of model and learning rate: loss and spike, kernel, test error.

All values have the axes (seeds, kinds, learning rates) first. A run that diverged has infinite losses, errors and
kernel. Source: Zhu et al., arXiv 2205.11787, figures 2 to 5 and 8.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from experiments.catapult.objective import GradientDescent
from experiments.measurement import Trained, measurement


def _where_alive(descent: GradientDescent, values: Tensor) -> np.ndarray:
    return torch.where(descent.alive, values, torch.inf).cpu().numpy()


@measurement("rise", "end", "loss_curve", "block", "width")
def loss(trained: Trained) -> dict[str, np.ndarray]:
    """L = 1/2 sum of squares: its largest and its last value on the way, both over the first.

    loss_curve: L before every training step where the kernel is traced too (steps,), else empty; block: descent steps
    in one training step; width: hidden units of a two-layer network, NaN for other modules.
    """
    descent: GradientDescent = trained.objective
    start = descent.losses[..., 0]
    kept = descent.losses[..., :: descent.block] if descent.trace else descent.losses[..., :0]
    return {
        "rise": _where_alive(descent, descent.losses.amax(-1) / start),
        "end": _where_alive(descent, descent.losses[..., -1] / start),
        "loss_curve": kept.cpu().numpy(),
        "block": np.full(start.shape, float(descent.block)),
        "width": np.full(start.shape, float(getattr(descent.model, "width", np.nan))),
    }


@measurement("rate", "top_start", "second_start", "kernel_end", "top_kept", "second_kept", "top_curve", "second_curve")
@torch.no_grad()
def kernel(trained: Trained) -> dict[str, np.ndarray]:
    """The learning rate times the kernel's largest initial eigenvalue, and what becomes of the kernel.

    top_start, second_start: the two largest initial eigenvalues over the number of points. kernel_end: the largest
    eigenvalue at the end over that at the start. top_kept, second_kept: the kernel along the two initial eigenvectors,
    end over start; top_curve, second_curve: the same over the number of points before every training step (steps,)
    where it is traced, else empty.
    """
    descent: GradientDescent = trained.objective
    x = trained.data.train.x.to(descent.device).transpose(0, 1).contiguous()
    features = descent.model.features(x)
    starts = descent.eigenvalues[:, None, None].expand(*descent.alive.shape, 2)
    relative = torch.tensor(descent.relative_rates, dtype=torch.float64, device=descent.device)
    largest = torch.linalg.eigvalsh(descent.model.kernel(features))[..., -1]
    kept = descent.along_directions(features) / starts
    curves = descent.kernel_values[..., :-1, :].cpu().numpy() / x.shape[1]
    return {
        "rate": (relative * starts[..., 0] / descent.unit_eigenvalue()[:, None, None]).cpu().numpy(),
        "top_start": starts[..., 0].cpu().numpy() / x.shape[1],
        "second_start": starts[..., 1].cpu().numpy() / x.shape[1],
        "kernel_end": _where_alive(descent, largest / starts[..., 0]),
        "top_kept": _where_alive(descent, kept[..., 0]), "second_kept": _where_alive(descent, kept[..., 1]),
        "top_curve": curves[..., 0], "second_curve": curves[..., 1],
    }


@measurement("best_error", "last_error", "accuracy")
def test(trained: Trained) -> dict[str, np.ndarray]:
    """Mean squared error on the test points, the best after any training step and the last; share of correct signs."""
    descent: GradientDescent = trained.objective
    error, accuracy = descent.evaluate(trained.data.test.x, trained.data.test.y)
    return {
        "best_error": _where_alive(descent, descent.test_errors.amin(-1)),
        "last_error": _where_alive(descent, error),
        "accuracy": accuracy.cpu().numpy(),
    }
