"""The command line: ``python -m launch`` (or ``reprise``) with Hydra overrides, or one of a few words.

    python -m launch experiment=vae            one run
    python -m launch -m experiment=vae         all arms and seeds, then claims and figure
    python -m launch list                      what can be run
    python -m launch plan experiment=vae       what it would take, nothing is started
    python -m launch report                    refresh the tables of the READMEs
    python -m launch verdicts vae scale=cpu    the verdicts of committed results
    python -m launch store                     what the store holds and which runs share a phase
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from launch import CONF
from launch.errors import EXIT_BAD_INPUT, UserError, explain

MULTIRUN = {"-m", "--multirun"}
HYDRA_FLAGS = {"--help", "-h", "--hydra-help", "--cfg", "-c", "--info", "-i", "--resolve", "--package", "-p",
               "--version", "--shell-completion", "-sc"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``python -m launch`` and of the ``reprise`` script."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if set(words) <= {"--help", "-h"}:
        return print_help()
    command = _commands().get(words[0])
    try:
        if command is not None:
            command(words[1:])
        else:
            run_hydra(words)
    except KeyboardInterrupt:
        print("stopped; the same command goes on from the last checkpoints", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        from launch.check import guess_locator

        explained = explain(error, guess_locator(words, error))
        if explained is None:
            raise
        print(f"error: {explained}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)


def _commands() -> dict[str, Callable[[list[str]], None]]:
    return {"list": _list, "report": _report, "plan": _plan, "store": _store, "verdicts": _verdicts}


def print_help() -> None:
    """Print this module's usage and the choices of every group."""
    from launch.listing import group_choices

    print(__doc__)
    for group in ("experiment", "model", "data", "kernel", "trainer", "launcher", "logger"):
        print(f"    {group:<11} {', '.join(group_choices(group))}")
    print("\nAny key of the config can be set (trainer.max_steps=10) or, with -m, swept (seed=0,1).")
    print("The whole config of an experiment: python -m launch experiment=<name> --cfg job")


def _list(words: list[str]) -> None:
    from launch.listing import print_list

    print_list()


def _report(words: list[str]) -> None:
    from launch.report import write_readmes

    for path in write_readmes():
        print(f"wrote {path}")


def _plan(words: list[str]) -> None:
    from launch.plan import print_plan

    print_plan(words)


def _store(words: list[str]) -> None:
    from launch.contents import print_contents

    print_contents(words)


def _verdicts(words: list[str]) -> None:
    from launch.report import print_verdicts

    scale = next((word.removeprefix("scale=") for word in words if word.startswith("scale=")), None)
    print_verdicts([word for word in words if "=" not in word], scale)


def run_hydra(words: list[str]) -> None:
    """Hand the command line to Hydra; one run goes through the sweeper as well, as a sweep of one job."""
    import hydra

    from launch.run import execute
    from launch.schema import register

    register()
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors come back here, where they become one line
    if not HYDRA_FLAGS & set(words):
        words = ["--multirun", *_overrides(words), *(() if MULTIRUN & set(words) else ("job.single=true",))]
    sys.argv = ["reprise", *words]
    hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(execute)()


def _overrides(words: list[str]) -> list[str]:
    """The words without ``-m``, which Hydra takes only before them. Raises UserError for any other option."""
    for word in words:
        if word.startswith("-") and word not in MULTIRUN:
            raise UserError(f"unknown option '{word}'", where="command line", names=MULTIRUN | HYDRA_FLAGS, value=word,
                            cure="settings are written key=value")
        if word.lstrip("+~").startswith("hydra.") and "_target_" in word:  # Hydra imports it before any check of ours
            raise UserError(f"'{word}' names code to import", where="command line",
                            cure="choose a launcher with launcher=<name>")
    return [word for word in words if word not in MULTIRUN]


if __name__ == "__main__":
    main()
