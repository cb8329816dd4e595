"""Which implementation of each operation a run uses.

An operation registers its implementations here, best first, each with a test of whether it can run on this machine.
``auto`` takes the first that can; a named implementation that cannot is refused with the reason and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Implementation:
    """One implementation of an operation.

    missing: returns why it cannot run here and what would make it available, or an empty string when it can.
    """

    name: str
    function: Callable[..., Any]
    missing: Callable[[], str] = lambda: ""


OPERATIONS: dict[str, list[Implementation]] = {}


def register(operation: str, implementation: Implementation) -> None:
    """Add an implementation to an operation, after those registered before it."""
    OPERATIONS.setdefault(operation, []).append(implementation)


class KernelSet:
    """The implementations a run uses, one for each operation.

    default: ``auto`` or the name of an implementation taken wherever an operation has it; choices: by operation, what
    to take instead. Raises ValueError naming the operation, the reason and the remedy when a choice cannot run here.
    """

    def __init__(self, default: str = "auto", choices: Mapping[str, str] | None = None):
        self.default, self.choices = default, dict(choices or {})
        unknown = set(self.choices) - set(OPERATIONS)
        if unknown:
            raise ValueError(f"unknown kernel operation {sorted(unknown)}; there are {sorted(OPERATIONS)}")
        self._chosen = {name: self._choose(name, self.choices.get(name, default)) for name in OPERATIONS}

    def _choose(self, operation: str, wanted: str) -> Implementation:
        found = {item.name: item for item in OPERATIONS[operation]}
        if wanted == "auto" or (wanted == self.default and wanted not in found):
            return next(item for item in OPERATIONS[operation] if not item.missing())
        if wanted not in found:
            raise ValueError(f"{operation} has no implementation '{wanted}'; there are {sorted(found)}")
        reason = found[wanted].missing()
        if reason:
            raise ValueError(f"{operation}={wanted} cannot run here: {reason}")
        return found[wanted]

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        if operation.startswith("_") or operation not in self._chosen:
            raise AttributeError(operation)
        return self._chosen[operation].function

    def describe(self) -> dict[str, str]:
        """The implementation taken for each operation."""
        return {name: item.name for name, item in self._chosen.items()}
