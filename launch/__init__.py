"""The harness: one run, phases and resume, the store, sweeps, plans, reports. It knows no paper."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
CONF = PROJECT / "conf"
