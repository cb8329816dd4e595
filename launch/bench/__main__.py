"""``python -m launch.bench [loops] [workers] [fusing]``: measure, print against the targets, keep as data."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable

from launch import PROJECT
from launch.errors import EXIT_BAD_INPUT, UserError
from launch.provenance import commit, device, versions
from launch.store import read_json, write_json

TARGETS = {  # the least each ratio should be
    "harness_over_lightning": 0.97,
    "harness_over_bare": 0.95,
    "workers_over_local": 1.7,
}


def benches() -> dict[str, Callable[[], dict[str, float]]]:
    from launch.bench.loops import measure_loops
    from launch.bench.sweeps import measure_fusing, measure_workers

    return {"loops": measure_loops, "workers": measure_workers, "fusing": measure_fusing}


def main(words: list[str]) -> None:
    """Run the named benches, all without a name, and merge their numbers into this machine's file."""
    known = benches()
    for word in words:
        if word not in known:
            raise UserError(f"unknown bench '{word}'", names=known, value=word)
    machine = device("cpu")
    path = PROJECT / "results" / "bench" / f"{_file_name(machine)}.json"
    kept = read_json(path) or {}
    for name in words or known:
        found = known[name]()
        kept[name] = {**found, **commit(), "versions": versions()}
        for key, value in found.items():
            target = f"  (target at least {TARGETS[key]})" if key in TARGETS else ""
            print(f"{name:<8} {key:<34} {value:>10}{target}", flush=True)
        write_json(path, {**kept, "machine": machine})
    print(f"kept in {path.relative_to(PROJECT)}")


def _file_name(machine: dict) -> str:
    text = f"{machine['cpu']}-{machine['cores']}-cores-{platform.machine()}"
    return "".join(letter if letter.isalnum() else "-" for letter in text).lower().strip("-")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
