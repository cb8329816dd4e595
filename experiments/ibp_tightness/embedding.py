"""Linear autoencoders trained with and without boxes, against principal components.

Source: Mao et al. (arXiv 2306.10426), the embedding experiment, IBP_embedding_exp.py of their repository. One training
step is one gradient step on all points of every seed. Their script never clears the gradients, so that they add up:
``keep_gradients`` does the same as momentum 1, whose sum is part of the optimiser's state and survives a resume.

Letters: S seeds, N points, D dimensions, W widths.
"""

from __future__ import annotations

from collections.abc import Sequence

import lightning
import numpy as np
import torch
from torch import Tensor

from experiments.ibp_tightness.fused import absent, one_radius
from experiments.measurement import Trained, measurement
from models.box_net import Box, BoxNet
from models.linear_autoencoders import LinearAutoencoders


class Embedding(lightning.LightningModule):
    """Full-batch descent on the mean norm of (|reconstruction - x| + radius of its box), every width by itself.

    method: ``box`` trains at radius eps, ``standard`` at 0; eps: one radius of the inputs' boxes, which have no limits.
    anneal_steps: over which the radius grows linearly from 0. lr, drop_after, drop_factor: the rate, and what it is
    multiplied by after that many steps. keep_gradients: never clear them, as the authors' script does.
    """

    def __init__(self, model: LinearAutoencoders, method: str, eps: float | Sequence[float], anneal_steps: int = 40,
                 lr: float = 5e-3, drop_after: int = 51, drop_factor: float = 0.1, keep_gradients: bool = True):
        super().__init__()
        if method not in ("box", "standard"):
            raise ValueError(f"arm.method is {method!r}; an embedding trains with box or standard")
        self.model, self.method, self.keep_gradients = model, method, keep_gradients
        self.radius = one_radius(eps)
        self.anneal_steps, self.lr = anneal_steps, lr
        self.drop_after, self.drop_factor = drop_after, drop_factor

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=1.0 if self.keep_gradients else 0.0)
        rate = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: self.drop_factor if step >= self.drop_after else 1.0
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rate, "interval": "step"}}

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        """All points of all seeds: (N, S, D), and their coordinates, which are not used."""
        grown = min(1.0, self.global_step / max(1, self.anneal_steps)) if self.method == "box" else 0.0
        points = batch[0].transpose(0, 1).float()
        losses = torch.stack([reconstruction_loss(net, points, grown * self.radius) for net in self.model])
        self.log("loss", losses.mean())
        return losses.sum()


def reconstruction_loss(net: BoxNet, x: Tensor, eps: float) -> Tensor:
    """Mean over points of the norm of the largest error in the box, coordinate by coordinate: x (S, N, D) -> (S,)."""
    output = net.boxes(Box(x, torch.full_like(x[:, :1], eps)))[-1]
    return ((output.centre - x).abs() + output.radius).norm(dim=2).mean(1)


@measurement("embed_widths", "embed_tau", "embed_radius", "embed_exact_radius", "embed_error", "pca_tau",
             "pca_radius", "pca_exact_radius", "pca_ratio", "pca_exact_ratio")
def embedding(trained: Trained) -> dict[str, np.ndarray]:
    """Tightness and growth of a box by trained autoencoders and by principal components: each (S, 1, W).

    embed_radius, embed_exact_radius: mean radius of the layer-wise and of the optimal output box, in radii of the input
    box. embed_error: mean norm of the error on test points. pca_*: the same with k components, as many as hidden units
    or dimensions of the data, whichever are fewer. pca_ratio, pca_exact_ratio: the two radii over 2 k / pi and
    sqrt(2 k / pi), of the largest k alone (S, 1).
    """
    learner, seeds = trained.objective, len(trained.seeds)
    if not isinstance(learner, Embedding):
        return absent(embedding, trained)
    points = trained.data.train.x.double().unbind(1)
    largest = max(learner.model.widths)
    bases = [principal_components(part, largest) for part in points]
    rows = {name: [] for name in embedding.metric_names[1:-2]}
    for net in learner.model:
        for name, value in {**_of_network(net, trained), **_of_components(bases, net)}.items():
            rows[name].append(value)
    values = {name: np.stack(row, 1)[:, None] for name, row in rows.items()}
    kept, widths = min(len(bases[0]), largest), np.array(learner.model.widths, float)
    return {
        **values, "embed_widths": np.broadcast_to(widths, (seeds, 1, len(widths))),
        "pca_ratio": values["pca_radius"][..., -1] / (2 * kept / np.pi),
        "pca_exact_ratio": values["pca_exact_radius"][..., -1] / np.sqrt(2 * kept / np.pi),
    }


@torch.no_grad()
def _of_network(net: BoxNet, trained: Trained) -> dict[str, np.ndarray]:
    inner, outer = (stage[-1].weight.cpu().double() for stage in net.stages)
    tau, radius, exact = growth(inner, outer)
    points = trained.data.test.x.transpose(0, 1).to(net.stages[0][0].weight)
    error = reconstruction_loss(net, points, 0.0).cpu().double()
    return {"embed_tau": tau.numpy(), "embed_radius": radius.numpy(), "embed_exact_radius": exact.numpy(),
            "embed_error": error.numpy()}


def _of_components(bases: Sequence[Tensor], net: BoxNet) -> dict[str, np.ndarray]:
    width = net.stages[0][0].weight.shape[1]
    inner = torch.stack([basis[:width] for basis in bases])
    names = ("pca_tau", "pca_radius", "pca_exact_radius")
    return {name: value.numpy() for name, value in zip(names, growth(inner, inner.mT), strict=True)}


def principal_components(points: Tensor, most: int) -> Tensor:
    """The leading directions of points (N, D), as many as their rank or ``most``: (k, D) with orthonormal rows."""
    _, sizes, rows = torch.linalg.svd(points, full_matrices=False)
    rank = int((sizes > 1e-9 * sizes[0]).sum())
    return rows[: min(rank, most)]


def growth(inner: Tensor, outer: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For x -> outer inner x: tau, and the radii of the layer-wise and the optimal output box for inputs of radius one.

    inner: (S, k, D); outer: (S, D, k). Means over outputs, each (S,).
    """
    loose, best = (outer.abs() @ inner.abs()).sum(2), (outer @ inner).abs().sum(2)
    return (best / loose).mean(1), loose.mean(1), best.mean(1)
