"""Friction along a scalar coordinate with bristles, whose bending is a state of its own."""

from typing import Annotated, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._compiler import refuted, to_jax
from ..._inputs import Number, checked, not_negative, positive
from ..scalar_coordinates import AbstractScalarCoordinate, AlongCoordinate
from .coordinate import AbstractCoordinateForce


class LuGreFriction(AbstractCoordinateForce):
    """Friction along a scalar coordinate x that sticks: the surfaces touch by bristles, which bend
    by z, the internal state [m or rad], and slip when they are bent too far. The force is -F,

        F = stiffness z + damping z' + viscous x',
        z' = x' - stiffness |x'| z / g(x'),
        g = dry + (static - dry) exp(-(x' / speed)^2).

    At rest F is what holds, up to `static`: x moves by F / stiffness and does not creep under a
    constant load. Under one that oscillates it may, as this model is known to do. Sliding at a
    constant rate, F = g sign(x') + viscous x', so that friction falls from `static` to `dry` around
    `speed` (Stribeck's effect). `dry` and `static` are given forces, and do not depend on the load
    of a joint.

    Bristles are fast, and integrated implicitly. But methods at velocity level and explicit schemes
    take x' and z in turn, so their step must stay below 2 sqrt(m / stiffness), where m is the mass
    that moves with x, and below 2 m / damping. With longer steps the bristles chatter and x creeps,
    without a failure in the result. `GeneralisedAlpha` has no such limit, nor have implicit schemes
    such as `diffrax.Kvaerno5()`.

    Choose `damping` of the order of sqrt(stiffness m), so that bristles do not ring. Much more may
    supply energy where x' passes through 0.

    **Fields:** `name`; `coordinate`; `dry`, `static` [N or N m]; `speed` [m/s or rad/s];
    `stiffness` [N/m or N m/rad] and `damping` [N s/m or N m s/rad] of the bristles; `viscous`
    [N s/m or N m s/rad]; `deflection` of the bristles at the start [m or rad].

    Reference: Canudas de Wit, Olsson, Åström and Lischinsky (1995), A new model for control of
    systems with friction, IEEE Transactions on Automatic Control 40.
    """

    internal_names: ClassVar[tuple[str, ...]] = ("deflection",)

    dry: Float[Array, ""]
    static: Float[Array, ""]
    speed: Float[Array, ""]
    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    viscous: Float[Array, ""]
    deflection: Float[Array, ""]

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        *,
        dry: Annotated[Number, positive],
        stiffness: Annotated[Number, positive],
        damping: Annotated[Number, not_negative],
        static: Annotated[Number, positive] | None = None,
        speed: Annotated[Number, positive] = 1e-2,
        viscous: Annotated[Number, not_negative] = 0.0,
        deflection: Number = 0.0,
    ):
        """**Arguments:** the fields. `static` is by default `dry`.

        **Raises:** `ValueError` for a coefficient that is out of its range, and for `static` below
        `dry`."""
        AlongCoordinate.__init__(self, name, coordinate)
        dtype = coordinate.dtype
        values = dry, dry if static is None else static, speed, stiffness, damping, viscous
        self.dry, self.static, self.speed, self.stiffness, self.damping, self.viscous = (
            to_jax(x, dtype) for x in values
        )
        self.deflection = to_jax(deflection, dtype)
        if refuted(lambda dry, static: dry <= static, self.dry, self.static):
            raise ValueError(
                f'`static` of LuGreFriction "{name}" must not be below `dry`, but they are '
                f"{float(self.static):.6g} and {float(self.dry):.6g}."
            )

    @property
    def glyphs(self):
        return (self.coordinate.spring_glyph,)

    @property
    def initial_internal(self):
        return self.deflection[None]

    def internal_rate(self, x, rate, t, u, z):
        falling = (self.static - self.dry) * jnp.exp(-jnp.square(rate / self.speed))
        return rate - self.stiffness * jnp.abs(rate) / (self.dry + falling) * z

    def force(self, x, rate, t, u, z):  # pyright: ignore[reportIncompatibleMethodOverride]
        bending = self.internal_rate(x, rate, t, u, z)[0]
        return -(self.stiffness * z[0] + self.damping * bending + self.viscous * rate)

    @property
    def measures(self):
        return False
