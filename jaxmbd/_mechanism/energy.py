"""Energies and powers of a mechanism, by the names of its bodies and forces."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._inputs import checked
from .._printed import printed, span
from .._system import State
from .linearise import frame_poses, frame_twists
from .pose import Pose, Twist

if TYPE_CHECKING:  # `mechanism` imports this module
    from .mechanism import Mechanism


@printed
class ElementPower(NamedTuple):
    """The `power` [W] that a force element gives to the bodies, and the power `released` by its
    potential energy. `lost` = released - power is what it dissipates, negative for
    what an actuator supplies."""

    power: Float[Array, ""]
    released: Float[Array, ""]

    def __str__(self) -> str:
        rows = (("gives", self.power), ("releases", self.released), ("loses", self.lost))
        return ", ".join(f"{what} {span(x, 'W')}" for what, x in rows)

    @property
    def lost(self) -> Float[Array, ""]:
        return self.released - self.power


@checked
def kinetic_energies(mechanism: "Mechanism", state: State) -> dict[str, Float[Array, ""]]:
    """Kinetic energy [J] of each body."""

    def of_body(body, x, w):
        return body.kinetic_energy(Pose.of(x), Twist.of(w))

    tables = mechanism.tables
    return _by_body(mechanism, of_body, tables.poses(state.q), tables.twists(state.v))


@checked
def gravitational_energies(mechanism: "Mechanism", state: State) -> dict[str, Float[Array, ""]]:
    """Potential energy [J] of each body in the field of gravity, 0 at the origin of the world."""

    def of_body(body, x):
        return body.potential_energy(Pose.of(x), mechanism.gravity)

    return _by_body(mechanism, of_body, mechanism.tables.poses(state.q))


@checked
def rotor_energies(mechanism: "Mechanism", state: State) -> dict[str, Float[Array, ""]]:
    """Kinetic energy [J] of the rotor of each force element, inertance rate^2 / 2, beside that of
    the bodies. It is 0 without a rotor."""

    def of_element(element, poses, twists):
        if element.inertance is None:
            return jnp.zeros((), state.q.dtype)
        return element.inertance * element.rate(poses, twists) ** 2 / 2

    return _by_force(mechanism, of_element, state)


@checked
def stored_energies(mechanism: "Mechanism", state: State) -> dict[str, Float[Array, ""]]:
    """Potential energy [J] of each force element."""
    return _by_force(mechanism, lambda element, poses, _: element.energy(poses, state.t), state)


@checked
def powers(mechanism: "Mechanism", state: State, u: PyTree = None) -> dict[str, ElementPower]:
    """`ElementPower` of each force element, for the control u."""
    # Potential energies may depend on time too, so t is differentiated as well.
    t, q, v = jnp.asarray(state.t, state.q.dtype), state.q, state.v
    moving = (mechanism.qdot(q, v), jnp.ones_like(t))
    _, rates = jax.jvp(lambda q, t: stored_energies(mechanism, State(t, q, v)), (q, t), moving)
    given = _by_force(
        mechanism,
        lambda element, poses, twists, *z: element.power(poses, twists, t, u, *z),
        state,
        mechanism.internal_parts(state.z, q.dtype),
    )
    return {name: ElementPower(power, -rates[name]) for name, power in given.items()}


@checked
def total_energy(mechanism: "Mechanism", state: State) -> Float[Array, ""]:
    """Kinetic and potential energy of all bodies and force elements [J], rotors included. It
    changes by minus what the force elements lose, plus the power of the constraints. That power is
    0 for ideal joints without prescribed motion."""
    parts = kinetic_energies, rotor_energies, gravitational_energies, stored_energies
    values = (x for part in parts for x in part(mechanism, state).values())
    return sum(values, jnp.zeros((), state.q.dtype))


def _by_body(mechanism: "Mechanism", of_body, *tables: Array) -> dict[str, Array]:
    values = mechanism.body_stack.map(of_body, *tables)
    return {name: values[i] for i, name in enumerate(mechanism.body_stack.names)}


def _by_force(
    mechanism: "Mechanism", of_force, state: State, parts: Sequence[tuple[Array, ...]] | None = None
) -> dict[str, Array]:
    """Evaluate of_force(element, poses, twists) of the frames, all elements of one kind together;
    with `parts` also of these arrays of each kind."""

    def of_element(element, qs, vs, *own):
        poses, twists = frame_poses(element, qs), frame_twists(element, qs, vs)
        return of_force(element, poses, twists, *own)

    found: dict[int, tuple[str, Array]] = {}
    stacks = mechanism.force_stacks
    parts = [()] * len(stacks) if parts is None else parts
    for forces, own in zip(stacks, parts, strict=True):
        values = mechanism.tables.map(forces, of_element, state.q, state.v, own=own)
        for i, place in enumerate(forces.places):
            found[place] = forces.names[i], values[i]
    return dict(found[place] for place in sorted(found))
