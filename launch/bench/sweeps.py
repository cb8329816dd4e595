"""Runs per minute of whole commands: two workers against one process, fused seeds against a fit for each.

Each command is timed from start to exit in an empty store, start-up included, as a user sees it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

from launch import PROJECT

SWEEP = ("experiment=adversarial", "seed=0,1,2,3,4,5")
FUSED = ("experiment=vae", "job.arm=aevb", "model.latent_dim=10")
SEEDS = (0, 1, 2, 3, 4)


def seconds_of(*words: str) -> float:
    """Wall seconds of one multirun in an empty store. Raises CalledProcessError when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "launch", "-m", *words, f"store.path={folder}/store",
                   f"results.path={folder}/results", "logger=none"]
        started = time.perf_counter()
        subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
        return time.perf_counter() - started


def measure_workers() -> dict[str, float]:
    """The same sweep one job after another and with two workers."""
    local, workers = (seconds_of(*SWEEP, f"launcher={name}") for name in ("local", "workers"))
    return {"local_seconds": round(local, 1), "workers_seconds": round(workers, 1),
            "workers_over_local": round(local / workers, 2)}


def measure_fusing() -> dict[str, float]:
    """Five seeds in one fit against one fit for each seed, both in one process."""
    together = seconds_of(*FUSED, "sweep.seeds=[" + ",".join(map(str, SEEDS)) + "]", "launcher=local")
    apart = sum(seconds_of(*FUSED, f"sweep.seeds=[{seed}]", "launcher=local") for seed in SEEDS)
    startup = seconds_of(*FUSED, "sweep.seeds=[0]", "launcher=local", "arm.steps=1")
    runs = len(SEEDS)
    return {
        "fused_runs_per_minute": round(60 * runs / (together - startup), 1),
        "one_fit_per_run_runs_per_minute": round(60 * runs / (apart - runs * startup), 1),
        "fused_over_separate": round((apart - runs * startup) / (together - startup), 2),
    }
