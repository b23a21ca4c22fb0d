"""The lag of first order, exact for signals that are polynomials between equal steps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact

from .._types import Scalar

# Terms of the series of moments below |b| = 1, where the last one is below 1e-17.
_TERMS = 18


def lagged(
    x: Inexact[Array, "steps m"], rate: Inexact[Array, ""], s: Scalar, points: int
) -> Inexact[Array, " m"]:
    """y(s) of y' = rate (x - y), y(0) = x(0), with times counted in steps. Between steps x is the
    polynomial through the nearest `points` of them. All but s may be complex.

    In a batch of times, what depends on x and the rate alone is computed once."""
    points = min(points, len(x))
    bases, last = jnp.asarray(_bases(points), x.dtype), len(x) - points
    before = points // 2 - 1
    each = np.arange(len(x) - 1)
    first = np.clip(each - before, 0, last)
    weights = _weights(bases, rate, jnp.ones_like(rate))[each - first]
    gained = sum(weights[:, j, None] * x[first + j] for j in range(points))

    def step(y, gained):
        y = jnp.exp(-rate) * y + gained
        return y, y

    _, ends = jax.lax.scan(step, x[0], gained)
    y = jnp.concatenate([x[:1], ends])
    k = jnp.clip(jnp.floor(s), 0, len(x) - 2).astype(jnp.int32)
    here, length = jnp.clip(k - before, 0, last), (s - k.astype(s.dtype)).astype(rate.dtype)
    weights = _weights(bases[k - here], rate, length)
    gained = sum(weights[j] * x[here + j] for j in range(points))
    return jnp.exp(-rate * length) * y[k] + gained


def _weights(
    bases: Inexact[Array, "*places p p"], rate: Inexact[Array, ""], length: Inexact[Array, ""]
) -> Inexact[Array, "*places p"]:
    """What each sample of x adds to y in this length of time, in steps, by

    rate int_0^length e^(-rate (length - xi)) xi^i dxi = length^i M_i(rate length)."""
    moments = _moments(rate * length, bases.shape[-1])
    terms = (length**i * m * bases[..., i] for i, m in enumerate(moments))
    return sum(terms, jnp.zeros(bases.shape[:-1], bases.dtype))


def _moments(b: Inexact[Array, ""], count: int) -> list[Inexact[Array, ""]]:
    """M_i(b) = b int_0^1 e^(-b (1 - u)) u^i du for i < count. They satisfy b M_i = b - i M_(i-1):
    upwards from M_0 = 1 - e^-b for |b| above 1, but below the errors would grow. There the last
    is a series, and the recursion goes downwards."""
    small = jnp.abs(b) < 1
    large = jnp.where(small, 1.0, b)
    up = [-jnp.expm1(-large)]
    for i in range(1, count):
        up.append(1 - i / large * up[-1])
    b, last = jnp.where(small, b, 0.0), count - 1
    # b i! sum_n (-b)^n / (n + i + 1)!, by Horner's rule.
    total = jnp.ones_like(b)
    for n in reversed(range(1, _TERMS)):
        total = 1 - b / (n + last + 1) * total
    down = [b / (last + 1) * total]
    for i in reversed(range(1, count)):
        down.insert(0, b / i * (1 - down[0]))
    return [jnp.where(small, x, y) for x, y in zip(down, up, strict=True)]


@functools.cache
def _bases(points: int) -> np.ndarray:
    """The coefficients of the Lagrange polynomials through `points` steps, by the number of steps
    before the interval that begins at xi = 0: `(points - 1, points, points)`, powers of xi last."""
    places = np.arange(points)
    tables = [
        np.linalg.inv(np.vander(places - before, increasing=True).astype(float)).T
        for before in range(points - 1)
    ]
    return np.stack(tables)
