"""The Hydra sweeper that turns an experiment's arms x grid x seeds into jobs; the work is in ``launch/sweep.py``."""

from __future__ import annotations

import sys

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class ArmsSweeper(Sweeper):
    """Hands Hydra's config loader and the chosen launcher to the harness and ends with its exit status."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from launch.check import check_hydra_targets

        check_hydra_targets(config)
        self.config, self.hydra_context = config, hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        from launch.sweep import run_sweep

        status = run_sweep(self.hydra_context.config_loader, self.config, self.launcher, arguments)
        if status:
            sys.exit(status)


ConfigStore.instance().store(
    group="hydra/sweeper", name="arms", node={"_target_": "hydra_plugins.arms.ArmsSweeper"}, provider="reprise"
)
