"""Training classifiers in four ways, for all seeds and all radii of a method in one fit.

Standard and PGD training (Madry et al., arXiv 1706.06083), IBP (Gowal et al., arXiv 1810.12715) and SABR (Mueller et
al., arXiv 2210.04871), which is IBP on a box smaller by ``shrink``. Replica r of the network is seed r // E with radius
r % E, E the number of radii. All radii of a seed share initial weights, batches and the attack's random starts, which
makes their differences paired; gradients are clipped for each replica by itself, so none depends on its neighbours.

Tightness is recorded on the way in a buffer, so that a resumed run ends with the same curve.
"""

from __future__ import annotations

from collections.abc import Sequence

import lightning
import torch
from torch import Tensor

from experiments.ibp_tightness.attack import ascend, small_box, uniform_noise
from experiments.ibp_tightness.fused import as_list
from experiments.ibp_tightness.losses import box_loss, cross_entropy, warmup_penalty
from experiments.ibp_tightness.tightness import input_box, tightness
from models.box_layers import ReplicaBatchNorm
from models.box_net import Box, BoxNet

METHODS = ("standard", "pgd", "box")
SCHEDULES = ("linear", "smooth")
TRAIN_NOISE = 0
SMALLEST = 1e-4  # of the radius, where it would be 0 and a box's growth undefined


class Classifier(lightning.LightningModule):
    """Adam on the loss of one method.

    method: ``standard``, ``pgd`` or ``box``; shrink: 1 for IBP, below 1 for SABR. seed, eps: one or several of each.
    max_steps: of the whole fit. ramp: fractions of it between which the radius of ``box`` grows from almost 0 to eps;
    schedule: ``linear``, or ``smooth`` (a quartic start). balance: weight of Shi et al.'s penalty, which fades as the
    radius grows. lr, lr_drops, lr_factor: the rate, and at which fractions it is multiplied by the factor. clip: the
    largest norm of a replica's gradient. attack_steps: of PGD in training. curve_points, curve_images: how often
    tightness is recorded on the way, and on how many test images.
    Raises ValueError for an unknown method or schedule.
    """

    def __init__(self, model: BoxNet, method: str, seed: int | Sequence[int], eps: float | Sequence[float],
                 max_steps: int, shrink: float = 1.0, ramp: Sequence[float] = (0.0, 0.5), schedule: str = "linear",
                 balance: float = 0.5, lr: float = 2e-3, lr_drops: Sequence[float] = (0.75, 0.9),
                 lr_factor: float = 0.2, clip: float = 10.0, attack_steps: int = 8, curve_points: int = 20,
                 curve_images: int = 100):
        super().__init__()
        if method not in METHODS:
            raise ValueError(f"arm.method is {method!r}; it must be one of {', '.join(METHODS)}")
        if schedule not in SCHEDULES:
            raise ValueError(f"objective.schedule is {schedule!r}; it must be one of {', '.join(SCHEDULES)}")
        self.method, self.shrink, self.schedule, self.balance = method, shrink, schedule, balance
        self.seeds, self.radii = as_list(seed), as_list(eps)
        self.model = model.repeat(len(self.radii))
        self.max_steps, self.ramp, self.attack_steps = max_steps, tuple(ramp), attack_steps
        self.lr, self.lr_drops, self.lr_factor, self.clip = lr, tuple(lr_drops), lr_factor, clip
        self.normalised = any(isinstance(layer, ReplicaBatchNorm) for layer in model.modules())
        self.curve_images = curve_images
        self.curve_steps = sorted({round(i * max_steps / curve_points) for i in range(curve_points)})
        self.register_buffer("eps", torch.tensor(self.radii).repeat(len(self.seeds)), persistent=False)
        self.register_buffer("curve", torch.full((len(self.curve_steps), self.model.replicas), torch.nan))

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr)
        drops = [fraction * self.max_steps for fraction in self.lr_drops]
        rate = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: self.lr_factor ** sum(step >= drop for drop in drops)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rate, "interval": "step"}}

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        """One minibatch for each seed: images (seeds, B, ...) and labels (seeds, B)."""
        self._record()
        x, labels = self.replicate(batch[0].flatten(2)), self.replicate(batch[1])
        clean = self.model.observe(x) if self.normalised or self.method == "standard" else None
        losses = cross_entropy(clean, labels) if self.method == "standard" else self._robust_losses(x, labels)
        self.log("loss", losses.mean())
        return losses.sum()

    def _robust_losses(self, x: Tensor, labels: Tensor) -> Tensor:
        """The losses (R,) of PGD, IBP or SABR on points x (R, B, D)."""
        grown = ramp_at(self.global_step / self.max_steps, *self.ramp, self.schedule) if self.method == "box" else 1.0
        box = input_box(x, self.eps * max(grown, SMALLEST))
        attacked = self._attack(box, labels) if self.method == "pgd" or self.shrink < 1 else None
        if self.method == "pgd":
            return cross_entropy(self.model(attacked), labels)
        box = box if attacked is None else small_box(box, attacked, self.shrink)
        *units, margins = self.model.boxes(box, labels)
        losses = box_loss(margins, labels)
        return losses + self.balance * (1 - grown) * warmup_penalty(box, units) if grown < 1 else losses

    def _attack(self, box: Box, labels: Tensor) -> Tensor:
        noise = uniform_noise(self.seeds, self.global_step, TRAIN_NOISE, box.centre.shape[1:])
        noise = self.replicate(noise.to(box.centre.device))
        return ascend(self.model, box, labels, self.attack_steps, noise)

    def replicate(self, values: Tensor) -> Tensor:
        """What belongs to the seeds (seeds, ...) for every replica (R, ...)."""
        return values.repeat_interleave(len(self.radii), 0)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Clip the gradient of every replica by itself."""
        clip_replicas([parameter.grad for parameter in self.model.parameters()], self.clip)

    def _record(self) -> None:
        """Measure before the update, so that a checkpoint made after any update holds all that came before."""
        if self.global_step in self.curve_steps:
            training = self.model.training
            self.model.eval()
            self.curve[self.curve_steps.index(self.global_step)] = self.tightness_on(self.trainer.datamodule)
            self.model.train(training)

    @torch.no_grad()
    def tightness_on(self, data: lightning.LightningDataModule) -> Tensor:
        """Local tightness (R,) at each replica's own radius, mean over outputs and the first test images."""
        x = self.test_points(data, self.curve_images)[0]
        return tightness(self.model, x, input_box(x, self.eps).radius).flatten(1).mean(1)

    def test_points(self, data: lightning.LightningDataModule, count: int | None = None) -> tuple[Tensor, Tensor]:
        """The first test images (R, count, D) and labels (R, count), on this module's device."""
        x, labels = (part[:count].to(self.device) for part in (data.test.x, data.test.y))
        replicas = self.model.replicas
        return x.flatten(1).expand(replicas, -1, -1), labels.expand(replicas, -1)


def ramp_at(progress: float, start: float, end: float, schedule: str) -> float:
    """The part of the radius in use, from 0 at ``start`` to 1 at ``end``, at some progress; all in fractions of a fit.

    ``smooth`` grows with the fourth power over the first quarter and linearly after it, with a continuous slope.
    """
    time = min(1.0, max(0.0, (progress - start) / (end - start))) if end > start else 1.0
    if schedule == "linear":
        return time
    middle, power = 0.25, 4
    slope = power * middle ** (power - 1)
    scale = 1 / (middle**power + slope * (1 - middle))
    return scale * (time**power if time <= middle else middle**power + slope * (time - middle))


@torch.no_grad()
def clip_replicas(gradients: Sequence[Tensor], largest: float) -> None:
    """Scale gradients, each (R, ...), in place so that no replica's norm over all of them exceeds ``largest``."""
    norms = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients]).sum(0).sqrt()
    factors = (largest / norms.clamp(min=1e-12)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factors.view(-1, *[1] * (gradient.ndim - 1)))
