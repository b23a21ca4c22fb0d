"""Energies and powers of a mechanism, by the names of its bodies and forces."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import Coordinates, RealScalarLike, Velocity
from .body import GROUND
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
    still = jnp.zeros(6 * len(mechanism.body_stack), q.dtype)
    return _by_force(mechanism, lambda element, poses, _: element.energy(poses, t), q, still)


def powers(
    mechanism: Mechanism, q: Coordinates, v: Velocity, t: RealScalarLike = 0.0, u: Any = None
) -> dict[str, ElementPower]:
    """`ElementPower` of each force element, for the control u."""
    # Potential energies may depend on the time too, so that both move along.
    t = jnp.asarray(t, q.dtype)
    moving = (mechanism.qdot(q, v), jnp.ones_like(t))
    _, rates = jax.jvp(lambda q, t: stored_energies(mechanism, q, t), (q, t), moving)
    given = _by_force(mechanism, lambda element, *motion: element.power(*motion, t, u), q, v)
    return {name: ElementPower(power, -rates[name]) for name, power in given.items()}


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


def _by_force(mechanism: Mechanism, of_force, q: Coordinates, v: Velocity) -> dict[str, Array]:
    """of_force(element, poses, twists) of the frames, all elements of one kind together."""
    names = mechanism.body_stack.names
    column = {name: i for i, name in enumerate((*names, GROUND))}
    ground = jnp.array([[0.0, 0, 0, 1, 0, 0, 0]], q.dtype).T
    xs = jnp.append(q.reshape(7, -1), ground, axis=1)
    ws = jnp.append(v.reshape(6, -1), jnp.zeros((6, 1), q.dtype), axis=1)

    def of_element(element, *bodies):
        k = len(bodies) // 2
        poses, twists = [], []
        for x, w, frame in zip(bodies[:k], bodies[k:], element.frames, strict=True):
            pose = Pose(x[:3], x[3:]).compose(frame)
            poses.append(pose)
            twists.append(Twist(Twist(w[:3], w[3:]).at(pose.position - x[:3]), w[3:]))
        return of_force(element, tuple(poses), tuple(twists))

    found: dict[int, tuple[str, Array]] = {}
    for forces in mechanism.force_stacks:
        # For each frame the columns of the bodies that it is on.
        ends = np.array([[column[name] for name in e.bodies] for e in forces.outlines()]).T
        values = forces.map(of_element, *(table[:, i] for table in (xs, ws) for i in ends))
        for i, place in enumerate(forces.places):
            found[place] = forces.names[i], values[i]
    return dict(found[place] for place in sorted(found))
