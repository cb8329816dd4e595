"""Where a result comes from: commit, source files, data, package versions, device, kernels, wall time.

The sources of a result are the project files that its numbers pass through, found by following imports from the
targets in its config without running anything. Each is hashed as a syntax tree without docstrings, so a reworded
comment does not make a result stale and a changed line does.
"""

from __future__ import annotations

import ast
import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from launch import PROJECT
from launch.targets import ROOMS, _absolute, _module_file

PACKAGES = ("torch", "lightning", "numpy", "scipy", "scikit-learn", "torchvision", "hydra-core", "omegaconf", "numba",
            "deepspeed", "triton")
LOOP = ("launch/fit.py", "launch/checkpoint.py", "launch/measure.py")  # what numbers pass through in the harness


def sources_of(config: DictConfig) -> dict[str, str]:
    """The project files behind a config's numbers, each with a short hash, sorted by path."""
    plain = OmegaConf.to_container(config, resolve=False)
    targets = {target for name in ("model", "data", "kernel", "objective", "measure", "phases", "trainer", "derive")
               for target in _targets(plain.get(name))}
    modules = {target.rpartition(".")[0] for target in targets if target.split(".")[0] in ROOMS}
    files = import_closure(modules) | {PROJECT / name for name in LOOP}
    return {str(path.relative_to(PROJECT)): _syntax_hash(path) for path in sorted(files)}


def _targets(node: Any) -> Iterable[str]:
    if isinstance(node, Mapping):
        if isinstance(node.get("_target_"), str):
            yield node["_target_"]
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from _targets(item)


def import_closure(modules: Iterable[str]) -> set[Path]:
    """The project files reached from modules by imports, those inside functions included."""
    waiting, found = list(modules), set()
    while waiting:
        path = _module_file(waiting.pop())
        if path is not None and path not in found:
            found.add(path)
            waiting += imported_modules(path)
    return found


@cache
def imported_modules(path: Path) -> tuple[str, ...]:
    """The modules of the project's rooms that a file imports."""
    names = []
    own = ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(node, path, own)
            names += [source, *(f"{source}.{alias.name}" for alias in node.names)]
    return tuple(name for name in names if name.split(".")[0] in ROOMS and _module_file(name))


@cache
def _syntax_hash(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:12]


def changed_sources(recorded: Mapping[str, str]) -> list[str]:
    """The recorded source files that are different now, or gone."""
    return [name for name, kept in recorded.items()
            if not (PROJECT / name).is_file() or _syntax_hash(PROJECT / name) != kept]


def commit() -> dict[str, Any]:
    """The checkout's commit and whether tracked files differ from it; empty outside a git checkout."""
    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(PROJECT), *words], capture_output=True, text=True, check=True,
                              timeout=20).stdout.strip()
    try:
        dirty = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!results", ":!README.md")
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(dirty)}
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "dirty": None}


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def device(accelerator: str) -> dict[str, Any]:
    """The processor, and the GPU when the run used one; no host name."""
    found: dict[str, Any] = {"cpu": _processor(), "cores": os.cpu_count(), "system": platform.system(),
                             "machine": platform.machine(), "accelerator": accelerator}
    if accelerator in ("gpu", "cuda"):
        import torch

        found["gpu"] = torch.cuda.get_device_name()
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def card(config: DictConfig) -> dict[str, Any]:
    """The provenance of a run: everything but wall time, data and kernels, which the run adds."""
    return {**commit(), "sources": sources_of(config), "versions": versions(),
            "device": device(config.trainer.accelerator), "made": datetime.now(UTC).isoformat(timespec="seconds")}
