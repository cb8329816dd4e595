"""One network of any kind for each seed, side by side in one fit.

For networks whose weights have no replica axis. They run one after another, which costs nothing where one network
already keeps the processor busy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


class PerSeed(nn.Module):
    """module: makes one network. seeds: each network's initial weights depend on its own seed alone."""

    def __init__(self, module: Callable[[], nn.Module], seeds: int | Sequence[int] = 0):
        super().__init__()
        self.networks = nn.ModuleList()
        for seed in [seeds] if isinstance(seeds, int) else seeds:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self.networks.append(module())

    @property
    def replicas(self) -> int:
        return len(self.networks)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Every input (R, ...), of which network r receives row r; returns (R, ...)."""
        return torch.stack([network(*rows) for network, *rows in zip(self.networks, *inputs, strict=True)])
