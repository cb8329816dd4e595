"""Tightness of random networks before any training, and what IBP's gradient would do to it.

Source: Mao et al. (arXiv 2306.10426), section 3 and relu_initialization.py of their repository. Nothing is learned: one
training step draws one network of every size for each seed and keeps its tightness in buffers, and the optimiser only
counts the draws, so that a killed run goes on where it stopped. Networks are evaluated in float64, since tau of the
deepest is 1e-17.

Letters: S seeds, B pictures, K classes, D pixels.
"""

from __future__ import annotations

from collections.abc import Sequence

import lightning
import numpy as np
import torch
from torch import Tensor, nn

from experiments.ibp_tightness.fused import as_list, one_radius
from experiments.ibp_tightness.losses import box_loss
from experiments.ibp_tightness.tightness import input_box, tightness
from models.box_cnn import BoxCnn
from models.box_mlp import BoxMlp
from models.box_net import BoxNet

WIDTH, DEPTH, CNN, GRADIENT = range(4)  # purposes of the draws
CIFAR_MEAN, CIFAR_DEVIATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # as the authors normalise


class Draws(lightning.LightningModule):
    """Gaussian multilayer perceptrons and the authors' convolutional networks at random.

    widths: hidden units of networks with two layers. depths: layers of networks with ``deep_width`` units in each.
    convolutional: (layers, width) of the authors' networks, drawn in the first step with batch normalisation and
    torch's own initialisation; their pictures, ``noise_pictures`` of uniform noise, only decide activation patterns.
    steps: draws. pictures: test pictures over which local tightness is averaged. eps: one radius of their boxes.
    gradient_width: hidden units of the two-layer linear network whose gradients are compared.
    """

    def __init__(self, model: nn.Module | None, seed: int | Sequence[int], eps: float | Sequence[float],
                 widths: Sequence[int], depths: Sequence[int], deep_width: int,
                 convolutional: Sequence[Sequence[int]], steps: int, pictures: int = 100, noise_pictures: int = 2,
                 gradient_width: int = 128):
        super().__init__()
        self.seeds = as_list(seed)
        self.radius = one_radius(eps)
        self.widths, self.depths, self.deep_width = list(widths), list(depths), deep_width
        self.convolutional, self.gradient_width = [tuple(pair) for pair in convolutional], gradient_width
        self.pictures, self.noise_pictures = pictures, noise_pictures
        self.drawn = nn.Parameter(torch.zeros(()))
        for name, sizes in (("width", self.widths), ("depth", self.depths)):
            self.register_buffer(name, torch.full((steps, len(sizes), 2, len(self.seeds)), torch.nan).double())
        self.register_buffer("cnn", torch.full((len(self.convolutional), 2, len(self.seeds)), torch.nan).double())
        self.register_buffer("gradient", torch.full((steps, 2, len(self.seeds)), torch.nan).double())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD([self.drawn], lr=1.0)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        """One draw of everything. The images (S, B, ...) and labels (S, B) serve the comparison of gradients."""
        step = self.global_step
        x = self.trainer.datamodule.test.x[: self.pictures].flatten(1).to(self.device)
        for place, width in enumerate(self.widths):
            self.width[step, place] = self._of_mlp(x, width, 2, (step, WIDTH, place))
        for place, depth in enumerate(self.depths):
            self.depth[step, place] = self._of_mlp(x, self.deep_width, depth, (step, DEPTH, place))
        for place, (depth, width) in enumerate(self.convolutional if step == 0 else ()):
            self.cnn[place] = torch.stack([self._of_cnn(depth, width, seed) for seed in self.seeds], 1)
        net = self._mlp(x.shape[1], self.gradient_width, 2, (step, GRADIENT), relu=False)
        self.gradient[step] = gradient_effect(net, batch[0].flatten(2).double(), batch[1], self.radius)
        return -self.drawn

    def _mlp(self, inputs: int, width: int, depth: int, purpose: Sequence[int], relu: bool = True) -> BoxNet:
        seeds = [draw_seed(seed, *purpose) for seed in self.seeds]
        net = BoxMlp(inputs, width, depth, 10, relu=relu, bias=False, init="gaussian", seeds=seeds)
        return net.double().to(self.device)

    def _of_mlp(self, x: Tensor, width: int, depth: int, purpose: Sequence[int]) -> Tensor:
        net = self._mlp(x.shape[1], width, depth, purpose)
        return both_tightnesses(net, x.double().expand(len(self.seeds), -1, -1), self.radius)

    def _of_cnn(self, depth: int, width: int, seed: int) -> Tensor:
        """Tightness of margins, since the authors merge the labels' margins with the last layer: (2,)."""
        net = BoxCnn((3, 32, 32), width, depth, 10, batch_norm=True, mean=CIFAR_MEAN, deviation=CIFAR_DEVIATION,
                     seeds=draw_seed(seed, CNN, depth)).double().eval().to(self.device)
        random = np.random.default_rng((seed, CNN, depth))
        x = torch.from_numpy(random.random((1, self.noise_pictures, 3072))).to(self.device)
        labels = torch.from_numpy(random.integers(0, 10, (1, self.noise_pictures))).to(self.device)
        return both_tightnesses(net, x, 1e-6, labels)[:, 0]


def draw_seed(*parts: int) -> int:
    """A seed for torch made from several numbers, so that draws neither meet nor depend on their order."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


@torch.no_grad()
def both_tightnesses(net: BoxNet, x: Tensor, radius: float, labels: Tensor | None = None) -> Tensor:
    """Mean tightness of the network with every ReLU left out, and local tightness: x (R, B, D) -> (2, R)."""
    radii = input_box(x, radius).radius
    return torch.stack([tightness(net, x, radii, labels, linear).flatten(1).mean(1) for linear in (True, False)])


def gradient_effect(net: BoxNet, x: Tensor, labels: Tensor, eps: float, step: float = 1e-3) -> Tensor:
    """What the part of the IBP loss's gradient that the standard loss lacks does to tightness: (2, R).

    First row: cosine between that part, downhill, and the gradient of tau. Second: the relative change of tau by a step
    along it of ``step`` times the weights' norm. net: linear; x (R, B, D) in [0, 1]; labels (R, B).
    """
    weights = [parameter for parameter in net.parameters()]
    box = input_box(x, eps)
    tau = _mean_tightness(net, box.radius)
    losses = [box_loss(net.boxes(here, labels)[-1], labels).sum() for here in (input_box(x, 0.0), box)]
    plain, certified, rise = (_flat(torch.autograd.grad(value, weights)) for value in (*losses, tau.sum()))
    extra = plain - certified
    cosine = torch.cosine_similarity(extra, rise, dim=1)
    length = step * _flat(weights).norm(dim=1, keepdim=True) / extra.norm(dim=1, keepdim=True)
    with torch.no_grad():
        for weight, change in zip(weights, _unflat(length * extra, weights), strict=True):
            weight += change
        change = _mean_tightness(net, box.radius) / tau - 1
    return torch.stack([cosine, change]).detach()


def _mean_tightness(net: BoxNet, radius: Tensor) -> Tensor:
    return tightness(net, radius, radius).flatten(1).mean(1)


def _flat(values: Sequence[Tensor]) -> Tensor:
    return torch.cat([value.detach().flatten(1) for value in values], 1)


def _unflat(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    parts = flat.split([value[0].numel() for value in like], 1)
    return [part.view_as(value) for part, value in zip(parts, like, strict=True)]
