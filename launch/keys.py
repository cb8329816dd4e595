"""A run as phases, and the key of each: the hash of everything that can change its numbers.

A phase's key covers its resolved config and the key of the phase before it, so arms that share a pretraining share its
key and it is computed once. Logger, paths, launcher, names and claims are left out: they change no number.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

from launch.errors import within

NUMERIC = ("seed", "model", "data", "kernel", "objective", "trainer")
SILENT = {  # settings inside those nodes that cannot change the numbers
    "trainer": {"checkpoint_every_seconds", "checkpoint_every_steps", "log_every_steps", "progress_bar"},
    "data": {"workers", "root", "download"},
}
JUDGING = ("hydra", "measure", "derive", "claims", "figure")  # what comes after the phases
KEY_LENGTH = 16


@dataclass(frozen=True)
class Phase:
    """One fit: its name, its config with the overlay applied and resolved, its key and its predecessor's key."""

    name: str
    config: DictConfig
    key: str
    parent: str | None


def phases_of(config: DictConfig) -> list[Phase]:
    """The phases of a job config in order, those left out by a false ``when`` removed."""
    found: list[Phase] = []
    for name in config.phases:
        with within("phases", str(name)):
            overlay = OmegaConf.to_container(config.phases[name] or OmegaConf.create(), resolve=True)
            if not overlay.pop("when", True):
                continue
            overlaid = overlay_phase(config, overlay)
        parent = found[-1].key if found else None
        found.append(Phase(str(name), overlaid, phase_key(overlaid, parent), parent))
    return found


def overlay_phase(config: DictConfig, overlay: dict[str, Any]) -> DictConfig:
    """The config with a phase's overlay; dotted and nested keys mean the same, a node with ``_target_`` replaces.

    Raises OmegaConf's key errors for a key that the schema does not know.
    """
    base = OmegaConf.masked_copy(config, [key for key in config if key not in JUDGING])
    _apply(base, "", overlay)
    try:
        OmegaConf.resolve(base)
    except InterpolationResolutionError as error:
        error.full_key = error.full_key or _unresolved(base)  # which OmegaConf does not say here
        raise
    return base


def _unresolved(node: Any, prefix: str = "") -> str:
    for key in node if isinstance(node, DictConfig) else range(len(node)):
        path = f"{prefix}.{key}" if prefix else str(key)
        try:
            value = node[key]
        except InterpolationResolutionError:
            return path
        except OmegaConfBaseException:  # a missing value, which is checked elsewhere
            continue
        found = _unresolved(value, path) if OmegaConf.is_config(value) else ""
        if found:
            return found
    return ""


def without_hydra(config: DictConfig) -> DictConfig:
    """A copy of a composed config without Hydra's own node."""
    return OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])


def _apply(config: DictConfig, prefix: str, overlay: dict[str, Any]) -> None:
    for key, value in overlay.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and "_target_" not in value:
            _apply(config, f"{path}.", value)
        elif path.split(".")[0] == "trainer":
            OmegaConf.update(config, path, value, merge=False)
        else:
            with open_dict(config):
                OmegaConf.update(config, path, value, merge=False, force_add=True)


def numeric_settings(config: DictConfig) -> dict[str, Any]:
    """The part of a resolved phase config that its numbers depend on."""
    kept = {name: OmegaConf.to_container(config[name], resolve=True) if OmegaConf.is_config(config[name])
            else config[name] for name in NUMERIC}
    for name, silent in SILENT.items():
        kept[name] = {key: value for key, value in kept[name].items() if key not in silent}
    return kept


def phase_key(config: DictConfig, parent: str | None) -> str:
    """SHA-256 over the phase's numeric settings and its parent's key, shortened."""
    return digest({"parent": parent, "settings": numeric_settings(config)})


def run_key(config: DictConfig, phases: list[Phase]) -> str:
    """The key of a job's measurements: its last phase, what is measured, and the phases' names."""
    measure = OmegaConf.to_container(config.measure, resolve=True)
    names = [phase.name for phase in phases]
    return digest({"parent": phases[-1].key if phases else None, "phases": names, "measure": measure})


def digest(value: Any) -> str:
    """A short SHA-256 of plain data, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]
