"""The attacks against closed forms for linear models and against scipy's L-BFGS-B on a nonlinear one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit
from torch import nn

from experiments.adversarial.attack import (
    MinimalChange,
    Penalty,
    choose_targets,
    distortion,
    fast_gradient_sign,
    predict,
)
from models.mlp import Mlp


def linear(pixels: int = 20, classes: int = 2, scale: float = 2.0, seed: int = 0) -> Mlp:
    torch.manual_seed(seed)
    model = Mlp(pixels, [], classes)
    with torch.no_grad():
        model.layers[0].weight.copy_(scale * torch.randn(classes, pixels))
    return model


def deep(seed: int = 1) -> Mlp:
    """A network with weights large enough for its units to bend, as after training."""
    torch.manual_seed(seed)
    model = Mlp(30, [20, 20], 5)
    with torch.no_grad():
        for layer in model.layers:
            layer.weight.copy_(1.5 * torch.randn_like(layer.weight))
    return model


def grey(count: int, pixels: int, seed: int = 0, low: float = 0.35, high: float = 0.65) -> torch.Tensor:
    """Images far from the walls of the box."""
    return low + (high - low) * torch.rand(count, pixels, generator=torch.Generator().manual_seed(seed))


def margins(model: Mlp, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Difference of the two logits (B,) and the difference of the weights (m,)."""
    layer = model.layers[0]
    weight, bias = (layer.weight[0] - layer.weight[1]).detach(), (layer.bias[0] - layer.bias[1]).detach()
    return images @ weight + bias, weight


def attack(model: nn.Module, images: torch.Tensor, **settings):
    return MinimalChange(**settings)(model, images, predict(model, images), torch.Generator().manual_seed(0))


def test_two_linear_classes_give_the_exact_distance_to_the_boundary():
    model, images = linear(), grey(30, 20)
    margin, weight = margins(model, images)
    found = attack(model, images)
    inside = (found.images > 0).all(1) & (found.images < 1).all(1)
    assert found.found.all() and inside.sum() > 20, "the box was meant to be inactive for most images"
    exact = margin.abs() / weight.norm()
    ratio = found.distortion * 20**0.5 / exact
    assert (ratio[inside] >= 1 - 1e-6).all() and (ratio[inside] < 1.01).all()


def test_the_smallest_change_belongs_to_the_largest_c_that_still_succeeds():
    model, image = linear(), grey(1, 20)
    target = 1 - predict(model, image)
    problem = Penalty(model.double(), image.double(), target)
    clean, sizes, exponents = image[0].double().numpy(), {}, np.linspace(-2, 2, 33)
    for exponent in exponents:  # a wide enough range: the assertion below sees both outcomes
        evaluate = problem.weighted(torch.tensor([10**exponent]))

        def fun(point, evaluate=evaluate):
            value, slope = evaluate(torch.from_numpy(point)[None], torch.tensor([0]))
            return float(value), slope[0].numpy().copy()

        end = minimize(fun, clean, jac=True, method="L-BFGS-B", bounds=[(0, 1)] * 20).x
        if predict(model, torch.from_numpy(end)[None]) == target:
            sizes[exponent] = np.sqrt(np.mean((end - clean) ** 2))
    assert 0 < len(sizes) < len(exponents)
    assert min(sizes, key=sizes.get) == max(sizes), "a larger weight on the size must give a smaller change"
    ours = attack(model.float(), image)
    margin, weight = margins(model, image)
    exact = float(margin.abs() / weight.norm()) / 20**0.5
    assert exact <= float(ours.distortion) <= sizes[max(sizes)] * 1.001


def scipy_attack(model: Mlp, image: torch.Tensor, target: int, box: bool, halvings: int) -> float:
    """The attack for one image, written out again on scipy's solver with numpy's forward and backward pass."""
    layers = [(layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()) for layer in model.layers]
    clean = image.double().numpy()

    def fun(point, c):
        activations = [point]
        for index, (weight, bias) in enumerate(layers):
            z = weight @ activations[-1] + bias
            activations.append(z if index == len(layers) - 1 else expit(z))
        logits = activations[-1]
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        slope = shares - np.eye(len(shares))[target]
        for index in range(len(layers) - 1, -1, -1):
            slope = layers[index][0].T @ slope
            if index:
                slope = slope * activations[index] * (1 - activations[index])
        change = point - clean
        return c * change @ change - np.log(shares[target]), slope + 2 * c * change

    low, high, best = -4.0, 4.0, np.inf
    for _ in range(halvings):
        middle = (low + high) / 2
        bounds = [(0, 1)] * len(clean) if box else None
        options = {"maxiter": 100}
        end = minimize(fun, clean, (10**middle,), "L-BFGS-B", jac=True, bounds=bounds, options=options).x
        point = end.astype(np.float32)
        if int(predict(model, torch.from_numpy(point)[None])) == target:
            low, best = middle, min(best, np.sqrt(np.mean((point - clean) ** 2)))
        else:
            high = middle
    return best


@pytest.mark.parametrize("box", [True, False])
def test_distortions_of_a_sigmoid_network_equal_those_of_scipys_lbfgsb(box):
    model, images = deep(), grey(8, 30, low=0.0, high=1.0)
    targets = choose_targets(model, images, predict(model, images), "runner_up", torch.Generator())[:, 0]
    ours = MinimalChange(box=box).towards(model, images, targets)
    reference = [scipy_attack(model, image, int(aim), box, 10) for image, aim in zip(images, targets, strict=True)]
    assert ours.found.all()
    np.testing.assert_allclose(ours.distortion.numpy(), reference, rtol=0.01)


def test_the_penaltys_gradient_equals_finite_differences():
    model, images = deep().double(), grey(4, 30).double()
    evaluate = Penalty(model, images, torch.tensor([0, 1, 2, 3])).weighted(torch.tensor([0.1, 1.0, 3.0, 10.0]))
    points, rows, step = images + 0.05, torch.tensor([2, 0]), 1e-6
    points = points[rows]
    _, gradient = evaluate(points, rows)
    for pixel in (0, 7, 29):
        shift = torch.zeros_like(points)
        shift[:, pixel] = step
        numeric = (evaluate(points + shift, rows)[0] - evaluate(points - shift, rows)[0]) / (2 * step)
        torch.testing.assert_close(gradient[:, pixel], numeric, rtol=1e-6, atol=1e-8)


def test_examples_have_the_target_label_in_float32_and_stay_in_the_box():
    model, images = deep(), grey(8, 30, low=0.0, high=1.0)
    found = attack(model, images)
    aims = choose_targets(model, images, predict(model, images), "runner_up", torch.Generator())[:, 0]
    assert found.images.dtype == torch.float32 and found.found.all()
    assert torch.equal(predict(model, found.images), aims)
    assert found.images.min() >= 0 and found.images.max() <= 1
    torch.testing.assert_close(found.distortion, distortion(images, found.images))


def test_an_image_that_cannot_be_changed_is_reported_as_not_found():
    model = linear()
    with torch.no_grad():
        model.layers[0].weight.zero_()
        model.layers[0].bias.copy_(torch.tensor([1.0, 0.0]))
    images = grey(3, 20)
    assert not attack(model, images).found.any()
    assert not fast_gradient_sign(model, images, predict(model, images)).found.any()


def test_without_the_box_two_linear_classes_need_no_larger_change():
    model, images = linear(), grey(20, 20, low=0.0, high=1.0)
    boxed, free = attack(model, images), attack(model, images, box=False)
    both = boxed.found & free.found
    assert both.sum() > 10
    assert (free.distortion[both] <= boxed.distortion[both] * 1.002).all()
    assert ((free.images < 0) | (free.images > 1)).any()


def test_targets_are_the_second_largest_logit_a_random_wrong_label_or_all_wrong_labels():
    model, images = linear(classes=6), grey(200, 20)
    labels, logits = predict(model, images), model(images).detach()
    generator = torch.Generator().manual_seed(4)
    runner_up, drawn, every = (
        choose_targets(model, images, labels, rule, generator) for rule in ("runner_up", "random", "all")
    )
    assert torch.equal(runner_up[:, 0], logits.topk(2, dim=1).indices[:, 1])
    assert (drawn[:, 0] != labels).all() and len(drawn.unique()) >= 5
    together = torch.cat([every, labels[:, None]], dim=1).sort(dim=1).values
    assert torch.equal(together, torch.arange(6).expand(200, 6))


def test_trying_all_targets_is_never_worse_than_one_of_them():
    model, images = deep(), grey(4, 30)
    smallest = attack(model, images, target="all", halvings=6).distortion
    for rule in ("runner_up", "random"):
        assert (smallest <= attack(model, images, target=rule, halvings=6).distortion + 1e-9).all()


def test_an_unknown_target_rule_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="'nearest' is not one of runner_up, random, all"):
        attack(linear(), grey(2, 20), target="nearest")


def test_the_fast_gradient_sign_stops_at_the_first_grid_step_past_the_closed_form():
    model, images = linear(), grey(30, 20)
    margin, weight = margins(model, images)
    exact = margin.abs() / weight.abs().sum()  # a step eps lowers the margin by eps |w|_1
    found = fast_gradient_sign(model, images, predict(model, images), step=0.002, steps=500)
    steps = torch.ceil(exact.double() / 0.002)
    assert found.found.all() and float(steps.max() * 0.002) < 0.35, "the box was meant to be inactive"
    torch.testing.assert_close(found.distortion / 0.002, steps, atol=1e-3, rtol=0)


def test_the_fast_gradient_sign_is_clamped_and_counts_only_what_clamping_leaves():
    model, images = linear(), torch.zeros(1, 20)
    found = fast_gradient_sign(model, images, predict(model, images))
    assert found.images.min() >= 0
    moved = (found.images > 0).double().mean()
    eps = found.images.max().double()
    torch.testing.assert_close(found.distortion[0], eps * moved.sqrt(), atol=1e-6, rtol=0)


def test_any_differentiable_classifier_of_images_can_be_attacked():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))
    images = torch.rand(3, 1, 8, 8)
    labels = predict(model, images)
    for found in (attack(model, images), fast_gradient_sign(model, images, labels)):
        assert found.images.shape == images.shape and found.found.any()
        assert (predict(model, found.images)[found.found] != labels[found.found]).all()
