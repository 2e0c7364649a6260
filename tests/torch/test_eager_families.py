"""Operators that are graphs of others on the device, by family, against the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("neuron")]
functional = torch.nn.functional


def values(*shape: int, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def square(size: int = 4) -> Any:
    return values(size, size) + 3 * torch.eye(size)


MATRIX, SQUARE, PLANES = values(4, 6), square(), values(1, 2, 6, 7)
PLACES = torch.tensor([[0, 2, 0], [1, 1, 0]])
COMPLEX = torch.complex(values(4, 6), values(4, 6, seed=1))

FAMILIES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "complex arithmetic": (lambda a, b: (a * b - a / (b + 2), a.abs(), a.conj() * b), (COMPLEX, COMPLEX.flip(0))),
    "complex and real": (lambda a, b: (a * b, b * (1 + 2j), a + 1.5, torch.add(a, a, alpha=2)), (COMPLEX, MATRIX)),
    "complex products and sums": (lambda a: (a @ a.t(), a.sum(0), a.prod(1), a.cumsum(1)), (COMPLEX,)),
    "complex in place": (lambda a: a.clone().mul_(a).add_(1j), (COMPLEX,)),
    "complex laid out otherwise": (lambda a: a.t() * a.t(), (COMPLEX,)),
    "complex from real": (lambda a: (torch.complex(a, a), torch.polar(a, a), a.to(torch.complex64)), (MATRIX,)),
    "fourier": (lambda a: (torch.fft.fft2(a), torch.fft.irfft(torch.fft.rfft(a), 6)), (MATRIX,)),
    "fourier in two stages": (lambda a: torch.fft.ifft(a, 360, norm="ortho"), (MATRIX,)),
    "short-time fourier": (
        lambda a: torch.stft(a.reshape(-1), 8, window=torch.ones(8, device=a.device), return_complex=True),
        (values(8, 8),),
    ),
    "solutions": (lambda a, b: (torch.linalg.inv(a), torch.linalg.solve(a, b), torch.linalg.det(a)), (SQUARE, MATRIX)),
    "cholesky": (lambda a: torch.linalg.cholesky(a @ a.t()), (SQUARE,)),
    "lu": (lambda a: torch.linalg.lu(a), (values(2, 5, 3),)),
    "qr": (lambda a: (torch.linalg.qr(a), torch.linalg.matrix_exp(a[:, :4])), (MATRIX,)),
    "error functions": (
        lambda a: (torch.erfinv(a.tanh()), torch.erfc(a), torch.special.erfcx(a), torch.special.ndtri(a.sigmoid())),
        (MATRIX,),
    ),
    "gamma functions": (
        lambda a: (torch.lgamma(a), torch.digamma(a), torch.polygamma(2, a + 3), torch.igamma(a.abs(), a.abs() + 1)),
        (MATRIX,),
    ),
    "bessel functions": (
        lambda a: (torch.i0(a), torch.special.i1e(a), torch.special.bessel_j1(a), torch.special.bessel_y0(a.abs())),
        (MATRIX * 10,),
    ),
    "polynomials": (
        lambda a: torch.special.chebyshev_polynomial_u(a, torch.arange(6, device=a.device)),
        (MATRIX,),
    ),
    "running results": (lambda a: (a.cumprod(0), a.cummax(1), a.logcumsumexp(1)), (MATRIX,)),
    "order statistics": (lambda a: (a.median(), a.kthvalue(2, 1), a.round().mode(1)), (MATRIX,)),
    "variance": (lambda a: (a.var(1), a.std(0), a.var(0, correction=2)), (MATRIX,)),
    "tensors without dimensions": (lambda a: (a.softmax(0), a.argmax(0), a.cumsum(0), a.log_softmax(0)), (values(),)),
    "pooling": (
        lambda a: (
            functional.max_pool2d(a, 3, 2, 1, ceil_mode=True),
            functional.avg_pool2d(a, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            functional.adaptive_avg_pool2d(a, (4, 3)),
            functional.adaptive_max_pool2d(a, (4, 3)),
        ),
        (PLANES,),
    ),
    "interpolation": (
        lambda a: (
            functional.interpolate(a, (9, 4), mode="bicubic"),
            functional.interpolate(a, (4, 9), mode="bilinear", antialias=True),
        ),
        (PLANES,),
    ),
    "places": (
        lambda a, i: (
            a[:2, :3].scatter_reduce(1, i, a[2:, :3], "amax"),
            a.index_put((i[0], i[1]), a[0, :3], accumulate=True),
            a.diagonal(1) * 2,
            torch.cdist(a, a + 1, p=1.5),
            torch.nonzero_static(i, size=4),
        ),
        (MATRIX, PLACES),
    ),
    "bits": (lambda a: (torch.frexp(a), torch.nextafter(a, -a), torch.hypot(a, 2 * a)), (MATRIX,)),
}


def leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_compiles_and_agrees(family: str, tracked: Any) -> None:
    function, given = FAMILIES[family]
    found = leaves(function(*(tensor.to("neuron") for tensor in given)))
    wanted = leaves(function(*given))
    assert tracked.get_fallback_ops() == {}
    for one, other in zip(found, wanted, strict=True):
        assert one.device.type == "neuron"
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-4)


def test_the_variance_of_one_number_is_not_one() -> None:
    assert torch.ones(2, 1, device="neuron").var(1).cpu().isnan().all()


def test_gradients_of_families_agree(tracked: Any) -> None:
    def gradients(x: Any, m: Any) -> list[Any]:
        x, m = x.detach().requires_grad_(), m.detach().requires_grad_()
        pooled = functional.max_pool2d(functional.interpolate(x, (8, 8), mode="bilinear"), 2)
        total = pooled.square().sum() + torch.linalg.solve(m, m[:, :2]).sum() + torch.logdet(m @ m.t())
        total = total + torch.fft.rfft(x).abs().sum() + torch.erfinv(m.tanh() / 2).sum()
        return list(torch.autograd.grad(total, [x, m]))

    found = gradients(PLANES.to("neuron"), SQUARE.to("neuron"))
    assert tracked.get_fallback_ops() == {}
    for one, other in zip(found, gradients(PLANES, SQUARE), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-3, atol=1e-3)


def test_extrema_of_truth_values_and_of_numbers_with_nan() -> None:
    truths = torch.tensor([[False, True, False], [False, False, True]])
    gaps = torch.tensor([[1.0, float("nan"), 3.0], [4.0, 2.0, 2.0]])
    for given in (truths, gaps):
        for function in (torch.max, torch.min):
            for one, other in zip(function(given.to("neuron"), 1), function(given, 1), strict=True):
                torch.testing.assert_close(one.cpu(), other, equal_nan=True)
        torch.testing.assert_close(given.to("neuron").amax(1).cpu(), given.amax(1), equal_nan=True)
    assert gaps.to("neuron").argmax().item() == gaps.argmax().item()


def test_changes_of_shape_in_place_are_the_tensors_own() -> None:
    tensor = MATRIX.to("neuron")
    assert tensor.clone().transpose_(0, 1).shape == (6, 4)
    torch.testing.assert_close((tensor.clone().t_() * 2).cpu(), MATRIX.t() * 2)
    torch.testing.assert_close(torch.rot90(tensor).cpu(), torch.rot90(MATRIX))


def test_random_numbers_have_their_distribution(tracked: Any) -> None:
    drawn = torch.randint(-3, 4, (7000,), device="neuron").cpu()
    counts = torch.bincount(drawn + 3, minlength=7)
    assert counts.min() > 850
    assert counts.max() < 1150
    weights = torch.tensor([0.0, 1.0, 3.0], device="neuron")
    picked = torch.multinomial(weights, 4000, replacement=True).cpu()
    assert abs(float((picked == 2).float().mean()) - 0.75) < 0.05
    assert torch.multinomial(weights, 2).cpu().sort()[0].tolist() == [1, 2]
    assert abs(float(torch.empty(4000, device="neuron").cauchy_().cpu().median())) < 0.1
    assert abs(float(torch.empty(4000, device="neuron").geometric_(0.25).cpu().mean()) - 4) < 0.4
    assert tracked.get_fallback_ops() == {}


def test_one_model_takes_a_number_from_memory_or_from_the_command() -> None:
    left, right = torch.tensor(2.0).to("neuron"), torch.tensor(3.0).to("neuron")
    for _ in range(2):
        assert (left * right).item() == 6
        assert (left * torch.tensor(4.0)).item() == 8


def test_matrices_too_large_for_the_device_run_on_the_host(tracked: Any) -> None:
    large = square(60).to("neuron")
    torch.testing.assert_close(torch.linalg.inv(large).cpu(), torch.linalg.inv(square(60)), rtol=1e-4, atol=1e-4)
    assert "aten::linalg_inv_ex" in tracked.get_fallback_ops()
