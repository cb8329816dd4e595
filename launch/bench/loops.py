"""Steps per second of the same small transformer through this harness, Lightning's own loop and a bare PyTorch loop.

The three take turns in short rounds, so that a machine whose speed drifts treats them alike; the ratio reported is the
median over rounds.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import lightning as L
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from launch.fit import build_trainer
from launch.keys import Phase
from launch.schema import Schema
from launch.store import Entry

VOCABULARY, LENGTH, BATCH, WIDTH = 256, 64, 16, 64
WARM_UP, STEPS, ROUNDS = 20, 120, 7


class Tokens(IterableDataset):
    """Batches of random tokens, a pure function of the step. Each: (batch, length + 1)."""

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(0)
        pool = torch.randint(VOCABULARY, (64, BATCH, LENGTH + 1), generator=generator)
        while True:
            yield from pool


class NextToken(L.LightningModule):
    """A two-layer causal transformer encoder with a next-token loss."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def loss(self, tokens: Tensor) -> Tensor:
        hidden = self.body(self.embedding(tokens[:, :-1]), mask=self.mask, is_causal=True)
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        return self.loss(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Stopwatch(L.Callback):
    """The time between the end of the warm-up and the last step."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        if batch_idx + 1 == WARM_UP:
            self.started = time.perf_counter()
        self.stopped = time.perf_counter()


def bare() -> float:
    """Steps per second of a plain loop."""
    module = NextToken()
    optimizer = module.configure_optimizers()
    started = 0.0
    for index, batch in zip(range(STEPS), _loader(), strict=False):
        optimizer.zero_grad()
        module.loss(batch).backward()
        optimizer.step()
        if index + 1 == WARM_UP:
            started = time.perf_counter()
    return (STEPS - WARM_UP) / (time.perf_counter() - started)


def _loader() -> DataLoader:
    return DataLoader(Tokens(), batch_size=None)


def lightning() -> float:
    """Steps per second of Lightning with logging and checkpoints off."""
    watch = Stopwatch()
    trainer = L.Trainer(accelerator="cpu", max_steps=STEPS, max_epochs=-1, logger=False, callbacks=[watch],
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    return _fit(trainer, watch)


def harness() -> float:
    """Steps per second of the trainer that a phase gets: checkpoints, progress reports and the metrics file on."""
    config = OmegaConf.structured(Schema)
    config.trainer.max_steps = STEPS
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        entry = Entry(Path(folder))
        trainer = build_trainer(Phase("fit", config, "bench", None), entry, (entry, entry), (), keep_below=0)
        trainer.callbacks.append(watch)
        return _fit(trainer, watch)


def _fit(trainer: L.Trainer, watch: Stopwatch) -> float:
    trainer.fit(NextToken(), train_dataloaders=_loader())
    return (STEPS - WARM_UP) / (watch.stopped - watch.started)


def measure_loops() -> dict[str, float]:
    """Median steps per second of each loop and the harness's ratio to the other two."""
    torch.set_num_threads(1)
    loops: dict[str, Callable[[], float]] = {"harness": harness, "lightning": lightning, "bare": bare}
    rounds = []
    for turn in range(ROUNDS):
        names = list(loops)[turn % 3:] + list(loops)[: turn % 3]
        rounds.append({name: loops[name]() for name in names})
    speeds = {f"{name}_steps_per_second": round(median(one[name] for one in rounds), 1) for name in loops}
    ratios = {f"harness_over_{other}": round(median(one["harness"] / one[other] for one in rounds), 3)
              for other in ("lightning", "bare")}
    return {**speeds, **ratios}
