"""What the store holds: finished phases and which runs share them, runs under way, failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from launch.errors import UserError
from launch.store import Entry, Store


def print_contents(words: list[str]) -> None:
    """Print the phases and runs of a store; ``words`` may be ``store.path=FOLDER``."""
    from rich.console import Console
    from rich.table import Table

    store = Store(_path(words))
    console = Console(width=180, highlight=False)
    users = phase_users(store)
    phases = Table("phase", "key", "seconds", "used by runs", title=f"phases in {store.path}")
    for entry in entries(store, "phases"):
        info = entry.info()
        name = info.get("phase", entry.status().get("phase", "?"))
        spent = f"{info['seconds']:.1f}" if info else _progress(entry)
        phases.add_row(name, entry.key, spent, ", ".join(users.get(entry.key, [])) or "-")
    console.print(phases)
    runs = Table("run", "key", "state", "error")
    for entry in entries(store, "runs"):
        status = entry.status()
        runs.add_row(_describe(entry), entry.key, "done" if entry.is_done() else status.get("state", "?"),
                     status.get("error", ""))
    console.print(runs)


def entries(store: Store, kind: str) -> Iterator[Entry]:
    folder = store.path / kind
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        yield Entry(path)


def phase_users(store: Store) -> dict[str, list[str]]:
    """For each phase key, the keys of the finished runs that went through it."""
    found: dict[str, list[str]] = {}
    for entry in entries(store, "runs"):
        for phase in entry.info().get("provenance", {}).get("phases", {}).values():
            found.setdefault(phase["key"], []).append(entry.key)
    return found


def _path(words: list[str]) -> Path:
    for word in words:
        name, _, value = word.partition("=")
        if name != "store.path" or not value:
            raise UserError(f"'{word}' is not an option of `store`", cure="write store.path=FOLDER")
        return Path(value)
    return Path("store")


def _progress(entry: Entry) -> str:
    status: dict[str, Any] = entry.status()
    return f"step {status.get('step', '?')}/{status.get('max_steps', '?')}"


def _describe(entry: Entry) -> str:
    path = entry.folder / "config.yaml"
    if not path.exists():
        return "?"
    config = OmegaConf.load(path)
    return f"{config.experiment.slug}/{config.experiment.scale} {config.job.arm} seed={config.seed}"
