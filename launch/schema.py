"""Every key that the harness itself reads, with its type and default.

Hydra merges experiment files into these dataclasses, so a misspelt key or a value of the wrong type is an error and
not a silent extra. The nodes of interchangeable components (model, data, kernel, objective, measure, derive, figure)
are checked against the signature of their ``_target_`` instead (``launch/targets.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore

SCALES = ("smoke", "cpu", "gpu", "paper")


@dataclass
class ExperimentNode:
    """Which paper this is."""

    slug: str = "???"
    title: str = "???"
    arxiv: str = "???"
    scale: str = "???"
    note: str = ""  # printed under the table: what a reader must know about this scale


@dataclass
class TrainerNode:
    """What a phase hands to ``lightning.Trainer``, and how often it saves."""

    accelerator: str = "cpu"
    devices: int = 1
    num_nodes: int = 1
    strategy: Any = "auto"
    precision: str = "32-true"
    max_steps: int = 0
    accumulate_grad_batches: int = 1
    gradient_clip_val: float | None = None
    threads: int = 1
    deterministic: bool = True
    checkpoint_every_seconds: float = 30.0
    checkpoint_every_steps: int | None = None
    log_every_steps: int = 50
    progress_bar: bool = False


@dataclass
class LoggerNode:
    """Where metrics go besides the local file."""

    mode: str = "offline"
    project: str = "reprise"
    entity: str | None = None


@dataclass
class LauncherNode:
    """Who starts the jobs of a sweep."""

    name: str = "local"
    workers: int = 1


@dataclass
class StoreNode:
    """Where finished phases and runs are kept, and which finished ones are computed again."""

    path: str = "store"
    rerun: str = "none"  # none, stale (sources changed since), all


@dataclass
class ResultsNode:
    """Where figures, claims and tables go; overrides that change numbers go to a folder beside the committed one."""

    path: str = "results"


@dataclass
class SweepNode:
    """The runs of the experiment: arms x grid x seeds."""

    seeds: list[int] = field(default_factory=lambda: [0])
    arms: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, Any] = field(default_factory=dict)
    fuse: list[str] = field(default_factory=list)


@dataclass
class JobNode:
    """Set by the sweeper: which arm and variant this job is, and after which phase it stops."""

    arm: str = ""
    variant: str = ""
    until: str | None = None
    single: bool = False


@dataclass
class Schema:
    """The whole config of a job."""

    experiment: ExperimentNode = field(default_factory=ExperimentNode)
    seed: Any = 0
    arm: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    kernel: dict[str, Any] = field(default_factory=dict)
    objective: dict[str, Any] = field(default_factory=dict)
    trainer: TrainerNode = field(default_factory=TrainerNode)
    phases: dict[str, Any] = field(default_factory=dict)
    sweep: SweepNode = field(default_factory=SweepNode)
    measure: list[Any] = field(default_factory=list)
    derive: list[Any] = field(default_factory=list)
    claims: list[Any] = field(default_factory=list)
    figure: dict[str, Any] = field(default_factory=dict)
    logger: LoggerNode = field(default_factory=LoggerNode)
    launcher: LauncherNode = field(default_factory=LauncherNode)
    store: StoreNode = field(default_factory=StoreNode)
    results: ResultsNode = field(default_factory=ResultsNode)
    job: JobNode = field(default_factory=JobNode)


def register() -> None:
    """Make the schema known to Hydra as the config named ``schema``."""
    ConfigStore.instance().store(name="schema", node=Schema)
