"""The figure draws what the table holds, and copes with arms that are missing and with runs that diverged."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from experiments.catapult.figure import draw
from experiments.measurement import Run, Runs


def run(arm, seed, kind, rate, **values):
    curve = np.array([1.0, 5.0, 2.0, 0.5]) if rate < 4 else np.array([1.0, 50.0, np.inf, np.inf])
    end = 1.0 if rate < 4 and (kind != "linear" or rate <= 2) else np.inf
    common = {"best_error": 0.1 * rate * end, "rise": rate * end, "kernel_end": end / rate, "block": 3.0, "width": 64.0,
              "top_start": 2.0 + seed, "second_start": 2.0, "loss_curve": curve, "top_curve": curve / 3,
              "second_curve": curve / 4}
    return Run(arm, seed, common | values, {"model.kind": kind, "arm.rate": rate})


def table(arms, seeds):
    return Runs([run(arm, seed, kind, rate) for arm in arms for seed in seeds for kind in ("net", "quadratic", "linear")
                 for rate in (1.5, 2.0, 2.6, 4.3)])


def render(figure):
    FigureCanvasAgg(figure).draw()
    return figure.axes


def test_three_series_over_the_critical_rate_stop_where_they_diverge():
    panels = render(draw(table(["teacher", "digits", "conv", "clusters"], [0, 1]), []))
    lines = {line.get_label(): list(line.get_xdata()) for line in panels[0].get_lines()}
    assert lines["$f$"] == lines[r"$f_{\mathrm{quad}}$"] == [0.75, 1.3] and lines[r"$f_{\mathrm{lin}}$"] == [0.75]
    assert any(line.get_linestyle() == "--" and list(line.get_xdata()) == [1, 1] for line in panels[0].get_lines())


def test_a_diverging_history_is_drawn_until_it_diverges():
    panels = render(draw(table(["clusters"], [0, 1]), []))
    assert "seed 1" in panels[4].get_title(), "the seed with the eigenvalues furthest apart"
    last = [line for line in panels[3].get_lines() if line.get_linestyle() == "-"][-1]
    assert list(last.get_xdata()) == [0, 3] and panels[3].get_yscale() == "log"


def test_widths_are_on_the_axis():
    runs = Runs([run(arm, 0, kind, 2.8, width=width, rise=width) for arm, width in
                 (("narrow", 16.0), ("medium", 64.0), ("wide", 256.0)) for kind in ("net", "quadratic")])
    panels = render(draw(runs, []))
    assert [text.get_text() for text in panels[8].get_xticklabels()] == ["16", "64", "256"]


def test_a_table_without_runs_gives_nine_empty_panels():
    assert len(render(draw(Runs([]), []))) == 9
