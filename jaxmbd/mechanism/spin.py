"""Turning over a step without energy from nothing."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._coordinates import components, cross, dot
from .._fusion import once
from .._types import RealScalarLike
from .inertia import apply_tensor

# Of Newton's method. Two leave rounding of the energy where a body turns by up to a tenth of a
# radian in a step, and 1e-9 of it up to three tenths.
_ITERATIONS = 2


@jax.custom_jvp
def middle_spin(
    tensor: Float[Array, "3 3"], omega: Float[Array, "3"], h: RealScalarLike
) -> Float[Array, "3"]:
    """x = (omega + omega+) / 2 of the implicit midpoint rule for a body that no torque acts on,

        I (x - omega) + h/2 x x I x = 0,

    in the axes of the body. Its products with x and with I x say that omega+ has the energy and the
    length of the angular momentum that omega has, whatever h, where the torque at the start of a
    step would feed energy to the body in each.
    """
    x, momentum = omega, apply_tensor(tensor, omega)
    for _ in range(_ITERATIONS):
        # The next iterate y: A y = A x - (I (x - omega) + h/2 x x I x), with A x = I x + h x x I x.
        y = momentum + 0.5 * h * cross(x, apply_tensor(tensor, x))
        x = once(_linearised(tensor, x, h)(y))
    return x


@middle_spin.defjvp
def _middle_spin_jvp(primals, tangents):
    tensor, omega, h = primals
    x = middle_spin(tensor, omega, h)

    def residual(tensor, omega, h):
        Ix = apply_tensor(tensor, x)
        return apply_tensor(tensor, omega) - Ix - 0.5 * h * cross(x, Ix)

    _, change = jax.jvp(residual, primals, tangents)
    return x, _linearised(tensor, x, h)(change)


def _linearised(tensor, x, h) -> Callable[[Float[Array, "3"]], Float[Array, "3"]]:
    """A^-1, with A y = I y + h/2 (x x I y - I x x y)."""
    u, v, w = components(apply_tensor(tensor, x))
    o = jnp.zeros_like(u)
    across = jnp.stack([o, w, -v]), jnp.stack([-w, o, u]), jnp.stack([v, -u, o])
    a, b, c = (
        column + 0.5 * h * (cross(x, column) - turned)
        for column, turned in zip(components(tensor, axis=1), across, strict=True)
    )
    normals = cross(b, c), cross(c, a), cross(a, b)
    scale = 1 / dot(a, normals[0])
    return lambda y: scale * jnp.stack([dot(normal, y) for normal in normals])
