"""Smooth periodic functions of an angle through given points."""

import math
from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._concrete import as_one_program, is_concrete, to_jax
from .._inputs import Shape, checked


class PeriodicSpline(eqx.Module):
    """The periodic cubic spline through given points: a function of an angle with period 2 pi and
    continuous second derivatives, so that accelerations do not jump. The error is of fourth order
    in the spacing of the angles.

        profile = mbd.PeriodicSpline(angles, radii)
        profile(0.3)

    **Fields:** at the points, with the first one repeated a turn later as the last,

    - `angles` [rad], `values`: as given;
    - `bends`: second derivatives of the spline.

    Reference: de Boor (1978), A Practical Guide to Splines, chapter IV.
    """

    angles: Float[Array, " points"]
    values: Float[Array, " points"]
    bends: Float[Array, " points"]

    @checked
    def __init__(self, angles: Annotated[Any, Shape(["n"])], values: Annotated[Any, Shape(["n"])]):
        """**Arguments:**

        - `angles`: at least 3, increasing within less than a turn, shape `(n,)` [rad].
        - `values`: of the function at these angles, shape `(n,)`. The spline has derivatives
          with respect to both.

        **Raises:** `ValueError` for other angles.
        """
        dtype = jnp.result_type(float)
        angles, values = to_jax(angles, dtype), to_jax(values, dtype)
        n = len(angles)
        if len(values) != n:
            raise ValueError(
                f"Argument `values` of PeriodicSpline must hold one value for each of the {n} "
                f"`angles`, but holds {len(values)}."
            )
        if n < 3:
            raise ValueError(f"A periodic spline needs at least 3 points, but got {n}.")
        if is_concrete(angles):
            x = np.asarray(angles)
            if not (np.all(np.diff(x) > 0) and x[-1] - x[0] < 2 * math.pi):
                raise ValueError(
                    "`angles` of the spline must increase within a turn, without its end, but are "
                    f"{x.tolist()}."
                )
        self.angles, self.values, self.bends = _closed(angles, values)

    def __call__(self, phi: Any) -> Float[Array, ""]:
        """The value at the angle phi [rad], shape `()`."""
        start = self.angles[0]
        phi = start + jnp.mod(phi - start, 2 * math.pi)
        i = jnp.sum(phi >= self.angles[1:-1])
        x, h = phi - self.angles[i], self.angles[i + 1] - self.angles[i]
        y, y_next, m, m_next = (table[k] for table in (self.values, self.bends) for k in (i, i + 1))
        slope = (y_next - y) / h - h * (2 * m + m_next) / 6
        return y + x * (slope + x * (m / 2 + x * (m_next - m) / (6 * h)))


@as_one_program
def _closed(angles: Array, values: Array) -> tuple[Array, Array, Array]:
    """The angles, values and second derivatives, with the first point at the end again."""
    angles = jnp.append(angles, angles[0] + 2 * math.pi)
    values = jnp.append(values, values[0])
    # Continuity of the slope at point i requires
    # h[i-1] m[i-1] + 2 (h[i-1] + h[i]) m[i] + h[i] m[i+1] = 6 (slope[i] - slope[i-1]).
    h = jnp.diff(angles)
    slope = jnp.diff(values) / h
    before = jnp.roll(h, 1)
    n = h.size
    i = np.arange(n)
    A = jnp.zeros((n, n), h.dtype).at[i, i].add(2 * (before + h))
    A = A.at[i, i - 1].add(before).at[i, (i + 1) % n].add(h)
    bends = jnp.linalg.solve(A, 6 * (slope - jnp.roll(slope, 1)))
    return angles, values, jnp.append(bends, bends[0])
