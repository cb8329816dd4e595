"""The page is drawn from measurements alone, also when arms, seeds or derived tables are missing."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from torch import nn

from experiments.adversarial.figure import draw
from experiments.adversarial.tables import distortions, half_transfer, transfer
from experiments.measurement import ACROSS, Run, Runs
from models.mlp import Mlp

WHOLE = {"fc10_1e-4": [], "my_own": [5], "fc100_100_10": [4, 4]}
HALVES = {"p1_fc100_100_10": 1.0, "p2_fc100_100_10": 2.0}


def run(arm: str, seed: int, hidden: list[int], half: float = 0.0) -> Run:
    generator = np.random.default_rng(seed)
    torch.manual_seed(len(arm))
    images = generator.random((12, 16), dtype=np.float32)
    sizes = generator.uniform(0.05, 0.1, 12)
    sizes[0] = np.nan
    return Run(arm, seed, {
        "half": half, "widths": np.array([16.0, *hidden, 3.0]), "images": images, "labels": np.arange(12) % 3,
        "weights": nn.utils.parameters_to_vector(Mlp(16, hidden, 3).parameters()).detach().numpy(),
        "adversarial": np.clip(images + 0.1, 0, 1), "distances": sizes, "fgsm_distances": 1.5 * sizes,
    })


def table(seeds: list[int], whole=WHOLE, halves=HALVES) -> Runs:
    runs = [run(arm, seed, hidden) for seed in seeds for arm, hidden in whole.items()]
    runs += [run(arm, seed, [4], half) for seed in seeds for arm, half in halves.items()]
    derived = []
    for seed in seeds:
        chosen = Runs(runs).select(seed=seed)
        derived.append(Run(ACROSS, seed, {
            **distortions(chosen, "fc100_100_10", "fc10_1e-4", "my_own", "none"), **transfer(chosen),
            **half_transfer(chosen, "p1_fc100_100_10", "p2_fc100_100_10"),
        }))
    return Runs([*runs, *derived])


def texts(runs: Runs) -> str:
    """Every text of the page as drawn."""
    import matplotlib.text
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = draw(runs, [])
    FigureCanvasAgg(figure)
    figure.savefig(io.BytesIO(), format="png", dpi=40)
    return " ".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


def test_models_are_named_as_in_the_paper_with_unknown_ones_last():
    page = texts(table([0, 1]))
    assert "FC10(1e-4)" in page and "FC100-100-10 (P1)" in page and "noise, std 0.3" in page
    assert page.index("FC10(1e-4)") < page.index("FC100-100-10") < page.index("my_own")


@pytest.mark.parametrize("runs", [
    table([0], halves={}), table([0], whole={}), table([3], whole={"my_own": [5]}, halves={}), Runs([]),
    Runs([run("fc10_1", 0, [])]),
], ids=["no halves", "only halves", "one model", "nothing", "nothing derived"])
def test_missing_runs_leave_gaps_and_no_error(runs):
    assert "(a)" in texts(runs)
