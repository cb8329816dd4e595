"""Small trained learners, fitted as the harness fits them."""

from __future__ import annotations

import lightning
import pytest
from omegaconf import OmegaConf

from data.digits import Digits
from experiments.measurement import Trained


def quiet_trainer(steps: int) -> lightning.Trainer:
    return lightning.Trainer(
        max_steps=steps, max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, limit_val_batches=0,
    )


@pytest.fixture(scope="session")
def digits():
    """Set-up digits for these seeds, read from batch ``start`` on."""
    def make(seeds, start=0, batch_size=32):
        data = Digits(batch_size=batch_size, seed=seeds)
        data.setup()
        data.start_batch = start
        return data

    return make


@pytest.fixture(scope="session")
def fit():
    """Train a learner for some steps on some data; returns the trainer."""
    def run(learner, data, steps, checkpoint=None):
        trainer = quiet_trainer(steps)
        trainer.fit(learner, datamodule=data, ckpt_path=checkpoint, weights_only=True)
        return trainer

    return run


@pytest.fixture(scope="session")
def trained():
    """What a measurement receives."""
    def make(learner, data, seeds, eps):
        return Trained(learner.eval(), data, OmegaConf.create({"arm": {"eps": eps}}), tuple(seeds), None)

    return make
