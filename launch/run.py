"""One job: its phases in order, then its measurements, all through the store.

``execute`` is what a Hydra launcher calls, in this process or another, and it never raises for a failed job: it returns
what happened, and the job's folder holds the log and the error.
"""

from __future__ import annotations

import logging
import os
import time
import traceback
from typing import Any

from omegaconf import DictConfig

from launch.errors import UserError
from launch.keys import Phase, phases_of, run_key, without_hydra
from launch.store import Entry, Store, pack_measurements

log = logging.getLogger("reprise")


def execute(config: DictConfig) -> dict[str, Any]:
    """Run one job and say how it went: ``{"key", "state", "error", "seconds"}``.

    state: ``done``, ``failed``, or ``refused`` for a user's mistake (then ``error`` is one line).
    """
    started = time.monotonic()
    phases = phases_of(config)
    key = run_key(config, phases)
    store = Store(config.store.path)
    entry = store.run(key)
    outcome = {"key": key, "state": "done", "error": "", "seconds": 0.0}
    try:
        _execute(config, phases, key, store, entry)
    except UserError as error:
        outcome |= {"state": "refused", "error": str(error)}
    except Exception as error:
        outcome |= {"state": "failed", "error": _one_line(error)}
        _record_failure(entry, error)
    return outcome | {"seconds": round(time.monotonic() - started, 3)}


def _execute(config: DictConfig, phases: list[Phase], key: str, store: Store, entry: Entry) -> None:
    if entry.is_done():
        return
    limit_threads(config.trainer.threads)
    from launch.fit import build_data, fit_phase

    _require_devices(config)
    until = config.job.until
    try:
        data = build_data(phases[-1].config)  # before anything is written: missing data is the user's to mend
    except FileNotFoundError as error:
        raise UserError(str(error)) from error
    with log_to(entry):
        entry.report(state="running", phase=phases[0].name, step=0, max_steps=phases[0].config.trainer.max_steps)
        for phase in phases:
            shared = data if phase is phases[-1] else None
            loggers = _loggers(config, phases, phase, store, key)
            fit_phase(store, phase, shared, (entry, store.phase(phase.key)), loggers)
            if phase.name == until:
                entry.report(state="waiting", phase=phase.name)
                return
        with store.lock(key):
            if not entry.is_done():
                _measure(config, phases, store, entry, data)
        entry.report(state="done")


def _require_devices(config: DictConfig) -> None:
    import torch

    trainer = config.trainer
    if trainer.accelerator in ("gpu", "cuda") and torch.cuda.device_count() < trainer.devices:
        raise UserError(f"trainer.devices is {trainer.devices} and this machine shows {torch.cuda.device_count()} GPUs",
                        cure="run it where there are enough, or another scale (SCALE=cpu), or trainer=cpu")


def _loggers(config: DictConfig, phases: list[Phase], phase: Phase, store: Store, key: str) -> list[Any]:
    from launch.live_wandb import LiveWandb
    from launch.wandb_files import open_run, phase_axis, wants_live

    if not wants_live(config):
        return []
    name = f"{config.job.arm or 'run'} seed={config.seed}"
    prefix, offset = phase_axis(phases)[phase.name]
    return [LiveWandb(lambda: open_run(config, store, key, name, config.job.arm or "run"), prefix, offset)]


def _measure(config: DictConfig, phases: list[Phase], store: Store, entry: Entry, data: Any) -> None:
    import lightning as L
    from omegaconf import OmegaConf

    from experiments.measurement import Trained
    from launch.fit import build_kernels, first_seed, load_objective
    from launch.measure import fused_axes, measure
    from launch.provenance import card

    started = time.monotonic()
    last = phases[-1]
    objective = load_objective(store, last, build_kernels(last.config)).to(_device(last.config))
    by_name = {phase.name: phase for phase in phases}
    seed = last.config.seed
    trained = Trained(
        objective=objective, data=data, config=last.config,
        seeds=tuple(seed) if OmegaConf.is_list(seed) else (int(seed),),
        load_phase=lambda name: load_objective(store, by_name[name], build_kernels(by_name[name].config)),
    )
    L.seed_everything(first_seed(seed), verbose=False)
    nodes = OmegaConf.to_container(config.measure, resolve=True)
    values = measure(trained, nodes, tuple(fused_axes(last.config)))
    infos = {phase.name: store.phase(phase.key).info() for phase in phases}
    provenance = card(config) | {
        "data": infos[last.name]["data"], "kernels": infos[last.name]["kernels"],
        "phases": {name: {"key": by_name[name].key, "seconds": info["seconds"]} for name, info in infos.items()},
        "measure_seconds": round(time.monotonic() - started, 3),
    }
    files = pack_measurements(values) | {"config.yaml": OmegaConf.to_yaml(without_hydra(config), resolve=True)}
    entry.finish(files, {"provenance": provenance})


def _device(config: DictConfig) -> str:
    return "cuda" if config.trainer.accelerator in ("gpu", "cuda") else "cpu"


def limit_threads(count: int) -> None:
    """Give torch and BLAS this many threads, so that a job's numbers do not depend on who started it."""
    import threadpoolctl
    import torch

    torch.set_num_threads(count)
    threadpoolctl.threadpool_limits(count)
    os.environ["OMP_NUM_THREADS"] = str(count)


class log_to:
    """Send the harness's log to ``log.txt`` in an entry's folder as well."""

    def __init__(self, entry: Entry):
        entry.folder.mkdir(parents=True, exist_ok=True)
        self.handler = logging.FileHandler(entry.folder / "log.txt")
        self.handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))

    def __enter__(self) -> None:
        log.setLevel(logging.INFO)
        log.addHandler(self.handler)

    def __exit__(self, *exception: Any) -> None:
        if exception[1] is not None:
            log.error("".join(traceback.format_exception(*exception)))
        log.removeHandler(self.handler)
        self.handler.close()


def _record_failure(entry: Entry, error: Exception) -> None:
    try:
        entry.report(state="failed", error=_one_line(error))
    except OSError:  # a full disk may be why it failed
        log.error("could not record the failure of %s", entry.key)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text[:300]}"
