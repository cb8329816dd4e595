"""The variational auto-encoder with one-hidden-layer tanh networks, many replicas at once.

Encoder q(z|x) = N(mean(x), diag variance(x)), prior p(z) = N(0, I), Bernoulli or Gaussian decoder p(x|z), the same
number of hidden units in both networks (Kingma and Welling, arXiv 1312.6114, appendices B and C). Every weight has a
leading replica axis, so that all seeds and step sizes of an experiment are one chain of batched matrix products;
replicas never mix, and a replica that diverges leaves the others alone.

Letters: R replicas, B data points, D visible and L latent dimensions. Replicas are ordered seed first, copy second.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LOG_TWO_PI = math.log(2 * math.pi)
LIKELIHOODS = ("bernoulli", "gaussian")


def gaussian_log_density(x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """log N(x; mean, diag exp(log_variance)), summed over the last axis."""
    scaled = (x - mean).square() * torch.exp(-log_variance)
    return -0.5 * (LOG_TWO_PI + log_variance + scaled).sum(-1)


class ReplicaLinear(nn.Module):
    """R independent affine maps, x (R, ..., inputs) -> (R, ..., outputs)."""

    def __init__(self, replicas: int, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(replicas, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(replicas, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.baddbmm(self.bias, x.flatten(1, -2), self.weight)
        return y.unflatten(1, x.shape[1:-1])


class TanhNetwork(nn.Module):
    """One tanh hidden layer and ``heads`` linear outputs of equal size (appendix C.1 and C.2)."""

    def __init__(self, replicas: int, inputs: int, hidden: int, outputs: int, heads: int = 1):
        super().__init__()
        self.hidden = ReplicaLinear(replicas, inputs, hidden)
        self.heads = nn.ModuleList(ReplicaLinear(replicas, hidden, outputs) for _ in range(heads))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        h = torch.tanh(self.hidden(x))
        return tuple(head(h) for head in self.heads)


class GaussianVAE(nn.Module):
    """Encoder and decoder of R = number of seeds variational auto-encoders.

    visible_dim, latent_dim, hidden_dim: D, L and the hidden units of both networks.
    likelihood: ``bernoulli`` (a logit for each pixel) or ``gaussian`` (a mean in (0, 1) and a variance for each).
    init_sd: standard deviation of every initial weight and bias.
    seeds: one replica for each; its initial weights depend on its own seed alone.

    Raises ValueError for an unknown likelihood.
    """

    def __init__(self, visible_dim: int, latent_dim: int, hidden_dim: int, likelihood: str = "bernoulli",
                 init_sd: float = 0.1, seeds: int | Sequence[int] = 0):
        super().__init__()
        if likelihood not in LIKELIHOODS:
            raise ValueError(f"model.likelihood is {likelihood!r}; it must be one of {', '.join(LIKELIHOODS)}")
        seeds = [seeds] if isinstance(seeds, int) else list(seeds)
        self.visible_dim, self.latent_dim, self.likelihood = visible_dim, latent_dim, likelihood
        self.encoder = TanhNetwork(len(seeds), visible_dim, hidden_dim, latent_dim, heads=2)
        decoder_heads = 1 if likelihood == "bernoulli" else 2
        self.decoder = TanhNetwork(len(seeds), latent_dim, hidden_dim, visible_dim, heads=decoder_heads)
        self._initialise(seeds, init_sd)

    @torch.no_grad()
    def _initialise(self, seeds: Sequence[int], init_sd: float) -> None:
        for replica, seed in enumerate(seeds):
            generator = torch.Generator().manual_seed(seed)
            for parameter in self.parameters():
                parameter[replica] = init_sd * torch.randn(parameter.shape[1:], generator=generator)

    @property
    def replicas(self) -> int:
        return self.encoder.hidden.weight.shape[0]

    def pick(self, replicas: Tensor | Sequence[int]) -> GaussianVAE:
        """A new model that holds copies of the given replicas, in that order, without gradients."""
        chosen = copy.deepcopy(self)
        index = torch.as_tensor(replicas, device=self.encoder.hidden.weight.device)
        for parameter in chosen.parameters():
            parameter.data = parameter.data[index]
            parameter.grad = None
        return chosen

    def repeat(self, copies: int) -> GaussianVAE:
        """A new model with every replica ``copies`` times, side by side: replica r is a copy of replica r // copies."""
        return self.pick(torch.arange(self.replicas).repeat_interleave(copies))

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of q(z|x): x (R, ..., D) -> two of (R, ..., L)."""
        return self.encoder(x)

    def log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        """log p(x|z) in nats, summed over pixels: x (R, ..., D) and z (R, ..., L), which broadcast, -> (R, ...)."""
        if self.likelihood == "gaussian":
            mean, log_variance = self.decoder(z)
            return gaussian_log_density(x, torch.sigmoid(mean), log_variance)
        (logits,) = self.decoder(z)
        return (x * logits - F.softplus(logits)).sum(-1)

    def mean_picture(self, z: Tensor) -> Tensor:
        """E[x|z]: z (R, ..., L) -> (R, ..., D) in (0, 1)."""
        return torch.sigmoid(self.decoder(z)[0])

    def dream(self, z: Tensor, noise: Tensor) -> Tensor:
        """A sample of p(x|z) made from standard normal noise: z (R, ..., L), noise (R, ..., D) -> (R, ..., D)."""
        if self.likelihood == "gaussian":
            mean, log_variance = self.decoder(z)
            return torch.sigmoid(mean) + torch.exp(0.5 * log_variance) * noise
        return (torch.special.ndtr(noise) < self.mean_picture(z)).to(noise.dtype)

    def decoder_weights(self) -> Tensor:
        """The decoder's parameters as one vector for each replica: (R, P)."""
        return torch.cat([parameter.detach().flatten(1) for parameter in self.decoder.parameters()], dim=1)

    @torch.no_grad()
    def load_decoder_weights(self, weights: Tensor) -> None:
        """Put back what ``decoder_weights`` gave: (R, P)."""
        sizes = [parameter[0].numel() for parameter in self.decoder.parameters()]
        for parameter, values in zip(self.decoder.parameters(), weights.split(sizes, dim=1), strict=True):
            parameter.copy_(values.view_as(parameter))
