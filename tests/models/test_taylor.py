"""The expansions of a module against an explicit Hessian, and how their errors shrink."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, hessian, jacrev

from models.taylor import TaylorModel, build_seeded, expand_outputs


def smooth_net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.RMSNorm(4), nn.Linear(4, 1)).double()


def outputs_of(module: nn.Module, x: torch.Tensor):
    names = [name for name, _ in module.named_parameters()]
    shapes = [value.shape for value in module.parameters()]

    def call(vector):
        parts = vector.split([shape.numel() for shape in shapes])
        weights = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        return functional_call(module, weights, (x,)).flatten()

    return call


def setting(seed: int = 0):
    module = build_seeded(smooth_net, seed)
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    start = nn.utils.parameters_to_vector(module.parameters()).detach()
    change = torch.randn(len(start), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return outputs_of(module, x), x, start, change


def test_orders_one_and_two_equal_the_explicit_jacobian_and_hessian():
    outputs, _, start, change = setting()
    linear = outputs(start) + jacrev(outputs)(start) @ change
    quadratic = linear + torch.einsum("i,nij,j->n", change, hessian(outputs)(start), change) / 2
    weights = start + change
    torch.testing.assert_close(expand_outputs(outputs, start, weights, 1), linear, atol=1e-12, rtol=0)
    torch.testing.assert_close(expand_outputs(outputs, start, weights, 2), quadratic, atol=1e-11, rtol=0)
    assert torch.equal(expand_outputs(outputs, start, weights, None), outputs(weights))


@pytest.mark.parametrize("order, factor", [(1, 4), (2, 8)])
def test_halving_the_change_divides_the_error_by_two_to_the_next_order(order, factor):
    outputs, _, start, change = setting()
    errors = []
    for size in (0.02, 0.01):
        weights = start + size * change
        errors.append(float((expand_outputs(outputs, start, weights, order) - outputs(weights)).norm()))
    assert errors[0] / errors[1] == pytest.approx(factor, rel=0.1)


def test_gradients_of_the_loss_equal_autograd_through_the_explicit_expansion():
    outputs, x, start, change = setting()
    y = torch.randn(6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    model = TaylorModel("quadratic", smooth_net, 0)
    model.expand(2)
    model.weights[0, 0, 1] += change
    losses = model.losses([x], y[None], torch.ones(1, 1, 2, dtype=torch.bool))
    first, second, value = jacrev(outputs)(start), hessian(outputs)(start), outputs(start)
    moved = change.clone().requires_grad_()
    loss = (value + first @ moved + torch.einsum("i,nij,j->n", moved, second, moved) / 2 - y).square().sum() / 2
    (gradient,) = torch.autograd.grad(loss, moved)
    torch.testing.assert_close(losses[0, 0, 1], loss.detach())
    torch.testing.assert_close(model.weights.grad[0, 0, 1], gradient)


@pytest.mark.parametrize("kind", ["net", "quadratic", "linear"])
def test_the_kernel_is_the_jacobian_times_its_transpose_at_the_current_weights(kind):
    outputs, x, start, change = setting()
    model = TaylorModel(kind, smooth_net, 0, points_at_once=4)
    model.weights[0, 0, 0] += change
    order = {"net": None, "quadratic": 2, "linear": 1}[kind]
    jacobian = jacrev(lambda weights: expand_outputs(outputs, start, weights, order))(start + change)
    torch.testing.assert_close(model.kernel([x])[0, 0, 0], jacobian @ jacobian.T)


def test_a_seeds_weights_do_not_depend_on_its_company_and_the_global_generator_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    together, alone = TaylorModel("net", smooth_net, [1, 7]), TaylorModel("net", smooth_net, 7)
    assert torch.equal(together.start[1], alone.start[0]) and not torch.equal(*together.start)
    assert torch.equal(torch.rand(3), expected)


def test_modules_whose_second_derivative_pytorch_gets_wrong_are_refused():
    def with_norm() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1)).double()

    with pytest.raises(ValueError, match="LayerNorm.*elementary"):
        TaylorModel("quadratic", with_norm)


def test_splitting_copies_changes_nothing():
    _, x, start, _ = setting()
    change = torch.randn(5, len(start), generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    results = []
    for copies in (2, 16):
        model = TaylorModel(["net", "quadratic"], smooth_net, 0, copies_at_once=copies)
        model.expand(5)
        model.weights += 0.3 * change
        alive = torch.ones(1, 2, 5, dtype=torch.bool)
        results.append((model.losses([x], torch.zeros(1, 6).double(), alive), model.weights.grad, model.outputs([x])))
    for small, large in zip(*results, strict=True):
        torch.testing.assert_close(small, large)
