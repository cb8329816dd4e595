"""One phase: one ``Trainer.fit``, resumed where it stopped, its weights put into the store.

The trainer is Lightning's, with everything that costs a step switched off unless it is asked for. The data module gives
batches as a pure function of (seed, step), so a resume needs only the number of batches done.
"""

from __future__ import annotations

import inspect
import logging
import time
import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import lightning as L
import torch
from hydra.utils import get_object, instantiate
from lightning.pytorch.loggers.logger import Logger
from omegaconf import DictConfig, OmegaConf

from launch.checkpoint import Checkpoint, last_good
from launch.keys import Phase
from launch.metrics import MetricsFile
from launch.store import Entry, Store

log = logging.getLogger("reprise")
for _chatty in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(_chatty).setLevel(logging.WARNING)
WEIGHTS = "weights.pt"
BORING = (  # true of every run here, and nothing a user could act on
    "does not have many workers", "resuming from a checkpoint", "treespec, LeafSpec", "have no `validation_step`",
    "is available but not used", "already in eval mode",
)


class Progress(L.Callback):
    """Tell the store, at most once a second, how far the phase is."""

    def __init__(self, entry: Entry, name: str, max_steps: int):
        self.entry, self.name, self.max_steps = entry, name, max_steps
        self._next = 0.0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        now = time.monotonic()
        if now >= self._next and trainer.is_global_zero:
            self._next = now + 1.0
            self.entry.report(state="running", phase=self.name, step=trainer.global_step, max_steps=self.max_steps)


def first_seed(seed: Any) -> int:
    """The seed that a phase's generators start from; of several fused seeds, the first."""
    return int(seed[0] if OmegaConf.is_list(seed) or isinstance(seed, list | tuple) else seed)


def build_data(config: DictConfig) -> Any:
    """The phase's data module, its files checked or fetched and its splits read."""
    data = instantiate(config.data)
    data.prepare_data()
    data.setup("fit")
    return data


def build_kernels(config: DictConfig) -> Any:
    return instantiate(config.kernel) if config.kernel else None


def build_objective(config: DictConfig, kernels: Any = None) -> L.LightningModule:
    """The objective with its model, both initialised from the phase's seed."""
    L.seed_everything(first_seed(config.seed), verbose=False)
    model = build_model(config, kernels)
    return instantiate(config.objective, model=model, **_kernels_for(config.objective, kernels))


def build_model(config: DictConfig, kernels: Any = None) -> torch.nn.Module | None:
    """The model alone, on the current default device (the meta device for plans)."""
    return instantiate(config.model, **_kernels_for(config.model, kernels)) if config.model.get("_target_") else None


def _kernels_for(node: DictConfig, kernels: Any) -> dict[str, Any]:
    accepts = "kernels" in inspect.signature(get_object(node["_target_"])).parameters
    return {"kernels": kernels} if accepts else {}


def load_objective(store: Store, phase: Phase, kernels: Any = None) -> L.LightningModule:
    """The objective as it was at the end of a finished phase."""
    objective = build_objective(phase.config, kernels)
    weights = torch.load(store.phase(phase.key).folder / WEIGHTS, map_location="cpu", weights_only=True)
    objective.load_state_dict(weights)
    return objective


def inherit(objective: L.LightningModule, previous: dict[str, torch.Tensor]) -> None:
    """Start from the previous phase: the objective's own ``inherit``, or the model's weights, strictly."""
    if hasattr(objective, "inherit"):
        objective.inherit(previous)
        return
    own = {name.removeprefix("model."): value for name, value in previous.items() if name.startswith("model.")}
    objective.model.load_state_dict(own)


def fit_phase(store: Store, phase: Phase, data: Any = None, report: Sequence[Entry] = (),
              loggers: Sequence[Logger] = ()) -> None:
    """Compute a phase unless the store has it. Safe to kill at any moment and to call from several processes.

    report: the entries whose status follows the phase; loggers: where metrics go besides the phase's file.
    """
    entry = store.phase(phase.key)
    if entry.is_done():
        damaged = entry.damaged_files()
        if not damaged:
            return
        log.warning("%s is damaged: phase %s is computed again", entry.folder / damaged[0], phase.name)
        entry.reset()
    data = data or build_data(phase.config)
    with store.lock(phase.key):
        if not entry.is_done():
            _fit(store, phase, entry, data, report, loggers)


def _fit(store: Store, phase: Phase, entry: Entry, data: Any, report: Sequence[Entry],
         loggers: Sequence[Logger]) -> None:
    kernels = build_kernels(phase.config)
    objective = build_objective(phase.config, kernels)
    if phase.parent is not None:
        parent = store.phase(phase.parent).folder / WEIGHTS
        inherit(objective, torch.load(parent, map_location="cpu", weights_only=True))
    found = last_good(entry.folder / "checkpoints", phase.key)
    data.start_batch = found[1] if found else 0
    log.info("phase %s (%s): %d steps", phase.name, phase.key, phase.config.trainer.max_steps)
    if found:
        log.info("phase %s goes on from batch %d (%s)", phase.name, found[1], found[0].name)
    trainer = build_trainer(phase, entry, report, loggers, keep_below=found[1] if found else 0)
    with warnings.catch_warnings():
        for text in BORING:
            warnings.filterwarnings("ignore", message=f".*{text}.*")
        try:
            trainer.fit(objective, datamodule=data, ckpt_path=found[0] if found else None, weights_only=True)
        except SystemExit:  # what Lightning makes of Ctrl-C
            if trainer.interrupted:
                raise KeyboardInterrupt from None
            raise
    seconds = next(item for item in trainer.callbacks if isinstance(item, Checkpoint)).seconds
    _finish(phase, entry, objective, data, kernels, seconds)


def _finish(phase, entry, objective, data, kernels, seconds) -> None:
    buffer = BytesIO()
    torch.save({name: value.cpu() for name, value in objective.state_dict().items()}, buffer)
    info = {
        "phase": phase.name, "parent": phase.parent, "seconds": round(seconds, 3),
        "data": data.fingerprint() if hasattr(data, "fingerprint") else "",
        "kernels": kernels.describe() if hasattr(kernels, "describe") else {},
    }
    entry.finish({"config.yaml": OmegaConf.to_yaml(phase.config), WEIGHTS: buffer.getvalue()}, info)
    log.info("phase %s done in %.1f s", phase.name, seconds)
    for path in (entry.folder / "checkpoints").glob("*.ckpt"):
        path.unlink()


def build_trainer(phase: Phase, entry: Entry, report: Sequence[Entry], loggers: Sequence[Logger],
                  keep_below: int) -> L.Trainer:
    """Lightning's trainer for a phase, with our checkpoints, metrics file and progress."""
    settings = phase.config.trainer
    callbacks: list[L.Callback] = [
        Checkpoint(entry.folder / "checkpoints", phase.key, settings.checkpoint_every_seconds,
                   settings.checkpoint_every_steps),
        *(Progress(target, phase.name, settings.max_steps) for target in report),
    ]
    strategy = settings.strategy
    return L.Trainer(
        accelerator=settings.accelerator, devices=settings.devices, num_nodes=settings.num_nodes,
        strategy=instantiate(strategy) if OmegaConf.is_config(strategy) else strategy,
        precision=settings.precision, max_steps=settings.max_steps, max_epochs=-1,
        accumulate_grad_batches=settings.accumulate_grad_batches, gradient_clip_val=settings.gradient_clip_val,
        deterministic=settings.deterministic and "warn", log_every_n_steps=settings.log_every_steps,
        logger=[MetricsFile(entry.folder / "metrics.jsonl", keep_below), *loggers], callbacks=callbacks,
        enable_progress_bar=settings.progress_bar, enable_checkpointing=False, enable_model_summary=False,
        num_sanity_val_steps=0, limit_val_batches=0, use_distributed_sampler=False,
    )
