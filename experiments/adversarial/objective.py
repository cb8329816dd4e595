"""How the paper's MNIST models are trained: full-batch L-BFGS, and an autoencoder's code under a softmax.

One training step is a fixed number of L-BFGS iterations on the whole training set, which is one batch of the data
module. Szegedy et al., section 4.2: sigmoid units, mean cross-entropy and for each layer l a penalty
``lambda_l * |W_l|^2 / k_l`` with k_l its number of units.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, one_hot

from models.mlp import Mlp

LOSSES = ("cross_entropy", "hinge")


class Classifier(LightningModule):
    """Trains a classifier by full-batch L-BFGS with strong Wolfe line searches."""

    def __init__(
        self, model: Mlp, loss: str = "cross_entropy", decay: Sequence[float] = (), svm_c: float = 0.1,
        freeze_first: bool = False, iterations: int = 20, memory: int = 10,
    ):
        """decay: lambda_l of each layer for ``cross_entropy``. svm_c: the C of ``hinge``.

        freeze_first: keep the first layer, an autoencoder's, as it is. iterations: L-BFGS iterations in one training
        step; memory: steps that L-BFGS remembers. Raises ValueError for an unknown loss or a decay whose
        length is not the number of layers.
        """
        super().__init__()
        if loss not in LOSSES:
            raise ValueError(f"loss: {loss!r} is not one of {', '.join(LOSSES)}")
        if loss == "cross_entropy" and len(decay) != len(model.layers):
            raise ValueError(f"decay {list(decay)} needs one value for each of the {len(model.layers)} layers")
        self.model, self.loss, self.decay, self.svm_c = model, loss, tuple(decay), svm_c
        self.iterations, self.memory = iterations, memory
        model.requires_grad_(True)
        model.layers[0].requires_grad_(not freeze_first)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, ...)."""
        return self.model(images)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, labels = batch
        logits = self.model(images)
        if self.loss == "hinge":
            loss = one_vs_rest_hinge(self.model, logits, labels, self.svm_c)
        else:
            loss = cross_entropy(logits, labels) + weight_penalty(self.model, self.decay)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        return torch.optim.LBFGS(
            trained, max_iter=self.iterations, history_size=self.memory, line_search_fn="strong_wolfe"
        )


class Reconstruction(LightningModule):
    """Trains the first layer as the encoder of an autoencoder; the decoder is left behind with this objective.

    The code is sigmoid(W x + b), the reconstruction sigmoid(V code + c), the loss the mean squared error over pixels
    plus ``sparsity`` times the divergence of each unit's mean activity from ``activity``.
    """

    def __init__(self, model: Mlp, lr: float = 2e-3, sparsity: float = 0.0, activity: float = 0.1):
        super().__init__()
        self.model, self.lr, self.sparsity, self.activity = model, lr, sparsity, activity
        self.decoder = nn.Linear(model.widths[1], model.widths[0])

    def forward(self, images: Tensor) -> Tensor:
        """Reconstructed pixels (B, m) of images (B, ...)."""
        return self.decoder(self.model.code(images, 1)).sigmoid()

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, _ = batch
        code = self.model.code(images, 1)
        loss = mse_loss(self.decoder(code).sigmoid(), images.flatten(1))
        self.log("reconstruction_loss", loss)
        return loss + self.sparsity * activity_divergence(code.mean(0), self.activity) if self.sparsity else loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam([*self.model.layers[0].parameters(), *self.decoder.parameters()], lr=self.lr)


def weight_penalty(model: Mlp, decay: Sequence[float]) -> Tensor:
    """Sum over layers of ``lambda_l * |W_l|^2 / k_l`` (a scalar); biases are free. Szegedy et al., section 4.2."""
    terms = [weight * layer.weight.square().sum() / layer.out_features
             for weight, layer in zip(decay, model.layers, strict=True)]
    return torch.stack(terms).sum()


def one_vs_rest_hinge(model: Mlp, logits: Tensor, labels: Tensor, c: float) -> Tensor:
    """The objective of scikit-learn's LinearSVC (squared hinge, bias penalised too), divided by C times the batch size.

    logits: (B, K); labels: (B,). The problem is convex, so the full-batch solver reaches LinearSVC's own solution.
    """
    signs = 2 * one_hot(labels, logits.shape[1]).to(logits.dtype) - 1
    hinge = (1 - signs * logits).clamp(min=0).square().sum(1).mean()
    return hinge + sum(parameter.square().sum() for parameter in model.parameters()) / (2 * c * len(labels))


def activity_divergence(mean_activity: Tensor, wanted: float) -> Tensor:
    """Mean over units (k,) of the Bernoulli divergence KL(wanted || mean activity), the usual sparsity penalty."""
    rate = mean_activity.clamp(1e-6, 1 - 1e-6)
    return (wanted * (wanted / rate).log() + (1 - wanted) * ((1 - wanted) / (1 - rate)).log()).mean()
