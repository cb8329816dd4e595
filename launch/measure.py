"""Measuring a trained job: call the config's measurement functions and check what they return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf

from experiments.measurement import Trained


def measure(trained: Trained, nodes: Any, fused: tuple[int, ...]) -> dict[str, Any]:
    """The values of all measurements, by metric name.

    fused: the lengths of the job's fused axes, which must be the leading axes of every value. Raises ValueError naming
    the function for a value with another shape, a name not declared, or one that is missing.
    """
    trained.objective.eval()
    values: dict[str, Any] = {}
    for node in nodes:
        function = get_object(node["_target_"])
        found = instantiate({**node, "_partial_": True})(trained)
        _check(node["_target_"], found, function.metric_names, fused)
        values.update(found)
    return values


def _check(target: str, found: dict[str, Any], declared: tuple[str, ...], fused: tuple[int, ...]) -> None:
    if set(found) != set(declared):
        raise ValueError(f"{target} declares {sorted(declared)} and returned {sorted(found)}")
    for name, value in found.items():
        shape = np.shape(value)
        if shape[: len(fused)] != fused:
            raise ValueError(f"{target}: '{name}' has shape {shape}; its leading axes must be the fused ones, {fused}")


def split_fused(values: dict[str, Any], index: tuple[int, ...]) -> dict[str, Any]:
    """The values of one run of a fused job: scalars as float."""
    if not index:
        return values
    chosen = {name: np.asarray(value)[index] for name, value in values.items()}
    return {name: float(value) if np.ndim(value) == 0 else value for name, value in chosen.items()}


def fused_axes(config: DictConfig) -> Iterator[int]:
    """The lengths of the fused axes in a job's config."""
    for key in config.sweep.fuse:
        yield len(OmegaConf.select(config, key))
