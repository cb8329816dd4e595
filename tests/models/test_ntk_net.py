"""The closed form of the two-layer models against autograd, torch.func's expansions and the paper's recursion."""

import pytest
import torch
from torch import nn
from torch.func import jacrev

from models.ntk_net import KINDS, TwoLayerNet, draw_weights
from models.taylor import TaylorModel

SEEDS, POINTS, DIM, WIDTH, COPIES = [3, 4], 9, 5, 20, 3


class PlainNet(nn.Module):
    """The same network as an ordinary module."""

    def __init__(self, u, v):
        super().__init__()
        self.u, self.v = nn.Parameter(u), nn.Parameter(v)

    def forward(self, x):
        return torch.relu(x @ self.u.T / x.shape[1] ** 0.5) @ self.v / len(self.v) ** 0.5


def problem():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(len(SEEDS), POINTS, DIM, generator=generator, dtype=torch.float64)
    y = torch.randn(len(SEEDS), POINTS, generator=generator, dtype=torch.float64).sign()
    change = torch.randn(len(SEEDS), len(KINDS), COPIES, WIDTH * (DIM + 1), generator=generator, dtype=torch.float64)
    return x, y, 0.5 * change


def closed_form(change=None) -> TwoLayerNet:
    model = TwoLayerNet(KINDS, DIM, WIDTH, SEEDS)
    model.expand(COPIES)
    if change is not None:
        model.u += change[..., : WIDTH * DIM].unflatten(-1, (WIDTH, DIM))
        model.v += change[..., WIDTH * DIM:]
    return model


def expansion(change) -> TaylorModel:
    seeds = iter(SEEDS)
    model = TaylorModel(KINDS, lambda: PlainNet(*draw_weights(WIDTH, DIM, next(seeds))), SEEDS, copies_at_once=2)
    model.expand(COPIES)
    model.weights += change
    return model


def gradients(model) -> torch.Tensor:
    parts = [model.weights.grad] if isinstance(model, TaylorModel) else [model.u.grad.flatten(-2), model.v.grad]
    return torch.cat(parts, -1)


def test_outputs_losses_and_gradients_equal_the_expansion_through_torch_func():
    x, y, change = problem()
    ours, reference = closed_form(change), expansion(change)
    alive = torch.ones(len(SEEDS), len(KINDS), COPIES, dtype=torch.bool)
    torch.testing.assert_close(ours.outputs(ours.features(x)), reference.outputs(list(x)), atol=1e-12, rtol=0)
    losses = ours.losses(ours.features(x), y, alive)
    torch.testing.assert_close(losses, reference.losses(list(x), y, alive), atol=1e-12, rtol=0)
    torch.testing.assert_close(gradients(ours), gradients(reference), atol=1e-12, rtol=0)


def test_kernels_equal_products_of_the_expansions_gradients():
    x, _, change = problem()
    ours, reference = closed_form(change), expansion(change)
    kernel = ours.kernel(ours.features(x))
    torch.testing.assert_close(kernel, reference.kernel(list(x)), atol=1e-12, rtol=0)
    directions = torch.randn(len(SEEDS), 2, POINTS, dtype=torch.float64)
    along = torch.einsum("sqi,skcij,sqj->skcq", directions, kernel, directions)
    torch.testing.assert_close(ours.kernel_along(ours.features(x), directions), along)
    torch.testing.assert_close(reference.kernel_along(list(x), directions), along)


def test_the_initial_kernel_is_the_jacobian_times_its_transpose_for_every_kind():
    x, _, _ = problem()
    model = closed_form()
    initial = model.initial_kernel(model.features(x))
    for s, seed in enumerate(SEEDS):
        plain = PlainNet(*draw_weights(WIDTH, DIM, seed))
        parts = jacrev(lambda weights, plain=plain, s=s: torch.func.functional_call(plain, weights, (x[s],)))(
            dict(plain.named_parameters()))
        jacobian = torch.cat([part.flatten(1) for part in parts.values()], 1)
        torch.testing.assert_close(initial[s], jacobian @ jacobian.T)
    copies = model.kernel(model.features(x))
    torch.testing.assert_close(copies, initial[:, None, None].expand_as(copies))


def test_one_example_follows_the_papers_recursion_for_the_quadratic_model():
    eta, target = 1.7, 1.0
    model = TwoLayerNet("quadratic", 1, 50, 2)
    x, y = torch.full((1, 1, 1), 1.3, dtype=torch.float64), torch.full((1, 1), target, dtype=torch.float64)
    features, alive = model.features(x), torch.ones(1, 1, 1, dtype=torch.bool)
    s = float(x.square().sum()) / 50
    g, lam = float(model.outputs(features)), float(model.kernel(features))
    assert 2 < eta * lam < 4, "a catapult was meant"
    for _ in range(60):
        model.losses(features, y, alive)
        model.u -= eta * model.u.grad
        model.v -= eta * model.v.grad
        gap = g - target
        g, lam = (target + (1 - eta * lam + s * eta**2 * gap * g) * gap,
                  lam - eta * s * (4 * g * gap - eta * lam * gap**2))
        assert float(model.outputs(features)) == pytest.approx(g, abs=1e-10)
        assert float(model.kernel(features)) == pytest.approx(lam, abs=1e-10)
    assert abs(g - target) < 1e-6 and lam < 2 / eta


def test_copies_that_are_not_alive_get_no_gradient_and_the_others_the_same_one():
    x, y, change = problem()
    alive = torch.ones(len(SEEDS), len(KINDS), COPIES, dtype=torch.bool)
    whole, part = closed_form(change), closed_form(change)
    losses = whole.losses(whole.features(x), y, alive)
    part.losses(part.features(x), y, alive)  # leaves gradients behind that must not survive
    alive[0, 1, 2] = alive[1, 0] = False
    torch.testing.assert_close(part.losses(part.features(x), y, alive), losses * alive)
    torch.testing.assert_close(gradients(part), gradients(whole) * alive[..., None])


def test_a_seeds_weights_do_not_depend_on_its_company_and_have_the_papers_distribution():
    alone, together = TwoLayerNet("net", 40, 2000, 7), TwoLayerNet(["linear", "net"], 40, 2000, [1, 7])
    assert torch.equal(alone.u[0, 0], together.u[1, 1]) and torch.equal(alone.v[0, 0], together.v[1, 0])
    assert set(alone.v.unique().tolist()) == {-1.0, 1.0} and abs(alone.v.mean()) < 0.1
    assert abs(alone.u.mean()) < 0.02 and abs(alone.u.var() - 1) < 0.02 and alone.u.dtype == torch.float64


def test_an_unknown_kind_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="cubic.*net, quadratic, linear"):
        TwoLayerNet(["net", "cubic"], 2, 3)
