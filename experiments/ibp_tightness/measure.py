"""Measurements of trained classifiers and of random networks; every value has the axes (seeds, radii) in front.

Source: Mao et al. (arXiv 2306.10426), sections 3 and 5. An arm of another kind has NaN.
Letters: S seeds, E radii, R = S E replicas, B points, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from experiments.ibp_tightness.attack import ascend, uniform_noise
from experiments.ibp_tightness.certify import crown_margins, ibp_margins
from experiments.ibp_tightness.exact import exact_tightness
from experiments.ibp_tightness.fused import absent, fused_shape
from experiments.ibp_tightness.initialisation import Draws
from experiments.ibp_tightness.objective import Classifier
from experiments.ibp_tightness.tightness import gaussian_tightness, input_box, tightness
from experiments.measurement import Trained, measurement
from models.box_mlp import BoxMlp
from models.box_net import Box

TEST_NOISE = 1


@measurement("tau", "tau_start", "tau_margin", "curve", "curve_steps")
def trained_tightness(trained: Trained) -> dict[str, np.ndarray]:
    """Local tightness at the end, before training and on the way, mean over outputs and the first test images.

    tau_margin: of the margins, with the label's logit merged into the last layer. curve: (S, E, points).
    """
    learner = trained.objective
    if not isinstance(learner, Classifier):
        return absent(trained_tightness, trained)
    end = learner.tightness_on(trained.data)
    x, labels = learner.test_points(trained.data, learner.curve_images)
    with torch.no_grad():
        margins = tightness(learner.model, x, input_box(x, learner.eps).radius, labels).flatten(1).mean(1)
    steps = torch.tensor([*learner.curve_steps, learner.max_steps])
    curve = torch.cat([learner.curve, end[None]]).T
    return shaped(trained, {"tau": end, "tau_start": curve[:, 0], "tau_margin": margins, "curve": curve,
                            "curve_steps": steps.expand(len(curve), -1)})


@measurement("clean", "attacked", "certified", "certified_ibp", "certified_crown", "box_radius")
def accuracy(trained: Trained, images: int | None, intervals: str, at_once: int, attack_steps: int = 20,
             ) -> dict[str, np.ndarray]:
    """Accuracies on the first ``images`` test images (null: all) at each replica's own radius.

    attacked: correct after projected gradient ascent. certified_ibp, certified_crown: no other label is possible in the
    box by interval bounds or by CROWN with such ``intervals``; certified: by either. box_radius: mean radius of the
    logits' box by interval bounds. at_once: images worked on together, which costs memory.
    """
    learner = trained.objective
    if not isinstance(learner, Classifier):
        return absent(accuracy, trained)
    x, labels = learner.test_points(trained.data, images)
    noise = learner.replicate(uniform_noise(learner.seeds, 0, TEST_NOISE, x.shape[1:]).to(x.device))
    found = []
    for start in range(0, x.shape[1], at_once):
        here = [part[:, start : start + at_once].contiguous() for part in (x, labels, noise)]
        found.append(_answers(learner, *here, intervals, attack_steps))
    return shaped(trained, {name: torch.cat([part[name] for part in found], 1).mean(1) for name in found[0]})


@torch.no_grad()
def _answers(learner: Classifier, x: Tensor, labels: Tensor, noise: Tensor, intervals: str, attack_steps: int,
             ) -> dict[str, Tensor]:
    """For each point (R, B), 1 or 0, and the size of its box."""
    net, box = learner.model, input_box(x, learner.eps)
    clean = net(x).argmax(2) == labels
    attacked = net(ascend(net, box, labels, attack_steps, noise)).argmax(2) == labels
    by_ibp = certifies(ibp_margins(net, box, labels), labels)
    by_crown = certifies(crown_margins(net, box, labels, intervals, at_once=x.shape[1]), labels)
    found = {"clean": clean, "attacked": clean & attacked, "certified": by_ibp | by_crown, "certified_ibp": by_ibp,
             "certified_crown": by_crown, "box_radius": net.boxes(box)[-1].radius.mean(2)}
    return {name: value.double() for name, value in found.items()}


def certifies(margins: Tensor, labels: Tensor) -> Tensor:
    """Whether all upper bounds of margins (R, B, K) but the label's own are negative: (R, B)."""
    return (margins.scatter(2, labels[..., None], -torch.inf) < 0).all(2)


@measurement("exact_tau", "exact_ratio")
def exact_agreement(trained: Trained, images: int) -> dict[str, np.ndarray]:
    """Tightness by mixed-integer programming on the first test images, and local tightness on them over it.

    Only for small multilayer perceptrons: the work grows exponentially with the units that can be on or off.
    """
    learner = trained.objective
    if not isinstance(learner, Classifier) or not images:
        return absent(exact_agreement, trained)
    x, _ = learner.test_points(trained.data, images)
    box, net = input_box(x, learner.eps), learner.model
    with torch.no_grad():
        local = tightness(net, x, box.radius).double().flatten(1).mean(1).cpu()
    exact = torch.tensor([_mean_exact(net, box, replica, images) for replica in range(net.replicas)])
    return shaped(trained, {"exact_tau": exact, "exact_ratio": local / exact})


def _mean_exact(net: BoxMlp, box: Box, replica: int, images: int) -> float:
    return float(np.mean([exact_tightness(net, box, replica, point) for point in range(images)]))


@measurement("init_widths", "init_width", "init_width_error", "init_width_slope", "init_relu_ratio", "init_depths",
             "init_depth", "init_depth_drop", "init_depth_fit", "cnn_layers", "cnn", "cnn_published",
             "cnn_decades", "gradient_cosine", "gradient_raises")
def at_initialisation(trained: Trained, published: Sequence[Sequence[float]]) -> dict[str, np.ndarray]:
    """Tightness of random networks, mean over draws; each (S, 1) or (S, 1, sizes) or (S, 1, sizes, [linear, local]).

    init_width_error: largest relative error of the closed form. init_width_slope: of log tau over log width.
    init_relu_ratio: local over linear tightness where it is farthest from sqrt(2). init_depth_drop: the smallest factor
    by which one more layer divides tau. init_depth_fit: R^2 of log tau as a line over depth. published, cnn_published:
    what others found, [linear, local] for each convolutional network. cnn_decades: the largest |log10| of our linear
    tightness over theirs. gradient_cosine, gradient_raises: mean cosine with tau's gradient, and the share of networks
    in which a step along IBP's extra gradient raises tau.
    """
    draws = trained.objective
    if not isinstance(draws, Draws):
        return absent(at_initialisation, trained)
    widths, depths = np.array(draws.widths, float), np.array(draws.depths, float)
    width, depth = (value.mean(0).permute(2, 0, 1).cpu().numpy() for value in (draws.width, draws.depth))
    cnn = draws.cnn.permute(2, 0, 1).cpu().numpy()
    others = np.array(published, float)[: cnn.shape[1]]
    theory = np.array([gaussian_tightness(int(value)) for value in widths])
    ratio = width[..., 1] / width[..., 0]
    farthest = np.abs(ratio - np.sqrt(2)).argmax(1)
    cosine, change = draws.gradient.cpu().numpy().transpose(1, 2, 0)
    logs = np.log(depth[..., 0])
    values = {
        "init_widths": np.broadcast_to(widths, ratio.shape), "init_width": width,
        "init_width_error": np.abs(width[..., 0] / theory - 1).max(1),
        "init_width_slope": _slope(np.log(widths), np.log(width[..., 0])),
        "init_relu_ratio": np.take_along_axis(ratio, farthest[:, None], 1)[:, 0],
        "init_depths": np.broadcast_to(depths, logs.shape), "init_depth": depth,
        "init_depth_drop": np.exp(-np.diff(logs, axis=1) / np.diff(depths)).min(1),
        "init_depth_fit": np.array([np.corrcoef(depths, row)[0, 1] ** 2 for row in logs]),
        "cnn_layers": np.broadcast_to([layers for layers, _ in draws.convolutional], cnn.shape[:2]).astype(float),
        "cnn": cnn, "cnn_published": np.broadcast_to(others, cnn.shape),
        "cnn_decades": np.abs(np.log10(cnn / others))[..., 0].max(1),
        "gradient_cosine": cosine.mean(1), "gradient_raises": (change > 0).mean(1),
    }
    return {name: np.asarray(value)[:, None] for name, value in values.items()}


def _slope(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least-squares slope of each row of y (S, points) over x (points,)."""
    centred = x - x.mean()
    return y @ centred / (centred @ centred)


def shaped(trained: Trained, values: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Values (R, ...) as float64 arrays (S, E, ...)."""
    shape = fused_shape(trained)
    return {name: value.detach().cpu().double().numpy().reshape(*shape, *value.shape[1:])
            for name, value in values.items()}
