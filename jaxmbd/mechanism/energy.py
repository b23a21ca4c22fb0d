"""Energies and powers of a mechanism, by the names of its bodies and forces."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Coordinates, RealScalarLike, Velocity
from .mechanism import Mechanism
from .pose import Pose, Twist


class ElementPower(NamedTuple):
    """What a force element does to the bodies: `power` that it gives them [W], of which `released`
    comes from its potential energy; `lost` = released - power is what it dissipates, negative for
    what an actuator supplies."""

    power: Float[Array, ""]
    released: Float[Array, ""]

    @property
    def lost(self) -> Float[Array, ""]:
        return self.released - self.power


def kinetic_energies(
    mechanism: Mechanism, q: Coordinates, v: Velocity
) -> dict[str, Float[Array, ""]]:
    """Kinetic energy [J] of each body."""

    def of_body(body, x, w):
        return body.kinetic_energy(Pose(x[:3], x[3:]), Twist(w[:3], w[3:]))

    return _by_body(mechanism, of_body, q, v)


def gravitational_energies(mechanism: Mechanism, q: Coordinates) -> dict[str, Float[Array, ""]]:
    """Potential energy [J] of each body in the field of gravity, 0 at the origin of the world."""

    def of_body(body, x):
        return body.potential_energy(Pose(x[:3], x[3:]), mechanism.gravity)

    return _by_body(mechanism, of_body, q)


def stored_energies(
    mechanism: Mechanism, q: Coordinates, t: RealScalarLike = 0.0
) -> dict[str, Float[Array, ""]]:
    """Potential energy [J] of each force element."""
    return {e.name: e.energy(mechanism.frames(e, q), t) for e in mechanism.forces}


def powers(
    mechanism: Mechanism, q: Coordinates, v: Velocity, t: RealScalarLike = 0.0, u: Any = None
) -> dict[str, ElementPower]:
    """`ElementPower` of each force element, for the control u."""
    # Potential energies may depend on the time too, so that both move along.
    t = jnp.asarray(t, q.dtype)
    moving = (mechanism.qdot(q, v), jnp.ones_like(t))
    _, rates = jax.jvp(lambda q, t: stored_energies(mechanism, q, t), (q, t), moving)
    return {
        e.name: ElementPower(
            e.power(mechanism.frames(e, q), mechanism.frame_twists(e, q, v), t, u), -rates[e.name]
        )
        for e in mechanism.forces
    }


def total_energy(
    mechanism: Mechanism, q: Coordinates, v: Velocity, t: RealScalarLike = 0.0
) -> Float[Array, ""]:
    """Kinetic and potential energy of all bodies and force elements [J]. Its rate is the sum of
    minus what the force elements lose and of the power of the constraints, which is 0 for ideal
    joints without given motion."""
    tables = (
        kinetic_energies(mechanism, q, v),
        gravitational_energies(mechanism, q),
        stored_energies(mechanism, q, t),
    )
    zero = jnp.zeros((), q.dtype)
    return sum((x for table in tables for x in table.values()), zero)


def _by_body(mechanism: Mechanism, of_body, *vectors: Array) -> dict[str, Array]:
    count = len(mechanism.body_stack)
    values = mechanism.body_stack.map(of_body, *(x.reshape(-1, count) for x in vectors))
    return {name: values[i] for i, name in enumerate(mechanism.body_stack.names)}
