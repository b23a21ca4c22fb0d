"""Reactions of joints: forces and torques from multipliers, and the largest of a motion."""

from collections.abc import Sequence
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from ..._compiler import picked
from ..._inputs import checked, unjudged
from ..._printed import printed
from ..._system import AbstractStates
from ..batching import batched
from ..forces import Wrench
from ..joints import AbstractConstraint
from ..mechanism import Mechanism
from ..transmission import transmission
from .violation import dense_jacobian, multipliers_of, points_of, quoted, tolerance_for


@checked
def reactions(
    mechanism: Mechanism,
    state: AbstractStates,
    name: str,
    multipliers: Annotated[Float[Array, "*batch nc"] | None, unjudged] = None,
    *,
    on: str | None = None,
    frame: str | None = None,
    point: ArrayLike | None = None,
) -> Wrench:
    """Force and torque that the joint `name` exerts on one of its bodies,

        force . d   = sum lam_i  dPhi_i / d(shift of the body along d),
        torque . d  = sum lam_i  dPhi_i / d(small rotation of the body about d through the point),

    summed over the rows of this joint alone, and likewise dPsi_i / d(velocity, angular velocity)
    for nonholonomic rows. This is J^T lam of the joint, as in M v' = f + J^T lam: it acts on the
    body. For a driven joint it includes the drive.

        hinge = mbd.reports.reactions(mechanism, sol, "hinge", on="arm")
        hinge.force, hinge.torque     # shapes (ns, 3)

    **Arguments:**

    - `state`: a `Solution`, a `Plan` or a `State`, with any leading axes.
    - `name`: of the joint.
    - `multipliers`: by default those of the solution, by its enforcement method. For
      `UdwadiaKalaba` and `LagrangeMultipliers` they are the constraint forces at that time. A
      `State` has none, so give them.
    - `on`: name of the body, "ground" included; by default the last one of the joint, b.
    - `frame`: `None` for components in world axes, or the name of a body of the joint for
      components in the joint's frame on that body.
    - `point`: world position about which the torque is taken, shape `(*batch, 3)` [m]; by default
      the origin of the joint's frame on the body `on`.

    **Returns:** a `Wrench`: force [N] and torque [N m], shapes `(*batch, 3)`; differentiable. With
    redundant rows only parts of it are unique: see `unique_reactions`.

    **Raises:** `ValueError` for an unknown joint or body, and for states or `multipliers` of
    another size, or without any.

    Reference: Haug (1989), Computer Aided Kinematics and Dynamics of Mechanical Systems, section
    11.3 (reaction forces in joints from multipliers).
    """
    on, frame = _checked(mechanism.joint(name), on, frame)
    t, q, v = points_of(mechanism, state)
    multipliers = multipliers_of(mechanism, state, multipliers)
    point = None if point is None else jnp.asarray(point, q.dtype)
    return _reactions(mechanism, ((name, on, frame, point),), t, q, v, multipliers)[0]


@checked
def unique_reactions(
    mechanism: Mechanism,
    state: AbstractStates,
    name: str,
    *,
    on: str | None = None,
    frame: str | None = None,
    point: ArrayLike | None = None,
    tolerance: float | None = None,
) -> Wrench:
    """Which components of the reaction of the joint `name` are unique. They do not change
    when any y with J^T y = 0 is added to the multipliers. The others depend on how redundant rows
    share the load, which rigid bodies leave open. Multipliers of least norm are one choice.

    **Arguments:** `state`: a `State` or a `Solution`. The others as in `reactions`,
    and `tolerance` as in `mobility`.

    **Returns:** a `Wrench` of Booleans, shapes `(*batch, 3)`: true for unique components.

    Reference: Wojtyra (2009), Joint reactions in rigid body mechanisms with dependent constraints,
    Mech. Mach. Theory 44.
    """
    on, frame = _checked(mechanism.joint(name), on, frame)
    t, q, v = points_of(mechanism, state)
    q, v = jax.lax.stop_gradient((q, v))
    point = _point(mechanism, q, name, on, point)
    tolerance = tolerance_for(tolerance, q.dtype)
    return _unique(mechanism, (name, on, frame), t, q, v, point, mechanism.rows(name), tolerance)


@eqx.filter_jit
def _reactions(mechanism, choices, t, q, v, multipliers) -> list[Wrench]:
    """The reactions of several joints in one program."""

    def of_joint(name, on, frame, point):
        def one(t, q, v, point, lam):
            return Wrench(*transmission(mechanism, (name, on, frame), t, q, v, point)(lam))

        point = _point(mechanism, q, name, on, point)
        own = picked(multipliers, np.s_[..., mechanism.rows(name)])
        return batched(one, (t, 0), (q, 1), (v, 1), (point, 1), (own, 1))

    return [of_joint(*choice) for choice in choices]


@eqx.filter_jit
def _unique(mechanism, choice, t, q, v, point, rows, tolerance) -> Wrench:
    def one(t, q, v, point):
        left, values, _ = jnp.linalg.svd(dense_jacobian(mechanism, t, q, v))
        missing = left.shape[0] - values.shape[0]
        values = jnp.pad(values, (0, max(missing, 0)))[: left.shape[0]]
        null = jnp.where(values > tolerance * jnp.max(values), 0.0, left)  # J^T null = 0
        transmit = jax.vmap(transmission(mechanism, choice, t, q, v, point), 1, 1)
        scale = sum(jnp.max(jnp.abs(x)) for x in transmit(jnp.eye(rows.size, dtype=q.dtype)))
        changes = transmit(null[rows])
        limit = 1e3 * tolerance * scale
        return Wrench(*(jnp.max(jnp.abs(change), axis=1) <= limit for change in changes))

    return batched(one, (t, 0), (q, 1), (v, 1), (point, 1))


def _checked(joint: AbstractConstraint, on: str | None, frame: str | None):
    on = joint.bodies[-1] if on is None else on
    for what, body in (("on", on), ("frame", frame)):
        if body is not None and body not in joint.bodies:
            raise ValueError(
                f'`{what}` must be a body of "{joint.name}", which are {quoted(joint.bodies)}, but '
                f'is "{body}".'
            )
    return on, frame


def _point(mechanism, q, name, on, point):
    """World position about which torques are taken."""
    if point is not None:
        return jnp.asarray(point, q.dtype)
    joint = mechanism.joint(name)
    i = joint.bodies.index(on)
    return batched(lambda q: mechanism.frames(joint, q)[i].position, (q, 1))


@printed
class ReactionEnvelope(eqx.Module):
    """The largest reactions of the joints over the times of a motion. `print` it.

    **Fields**, of shape `(*batch, joints)`:

    - `names`: of the joints.
    - `force`: the largest size of the force of the joint [N]. `force_index`: the place of its time
      among those of the motion, so `motion.state(index)` is the pose. `force_time`: that time [s].
    - `torque`, `torque_index`, `torque_time`: the same of the torque [N m] about the joint.
    """

    force: Float[Array, "*batch joints"]
    force_index: Int[Array, "*batch joints"]
    force_time: Float[Array, "*batch joints"]
    torque: Float[Array, "*batch joints"]
    torque_index: Int[Array, "*batch joints"]
    torque_time: Float[Array, "*batch joints"]
    names: tuple[str, ...] = eqx.field(static=True)

    def __str__(self) -> str:
        if np.ndim(self.force) > 1:
            shape = self.force.shape[:-1]
            return f"Reactions of {len(self.names)} joints in motions of shape {shape}."
        width = max(map(len, self.names), default=0)
        rows = [f"{'':{width}}  force [N]  at [s]    torque [N m]  at [s]"]
        for name, *numbers in zip(
            self.names, self.force, self.force_time, self.torque, self.torque_time, strict=True
        ):
            force, when, torque, then = map(float, numbers)
            rows.append(f"{name:{width}}  {force:9.4g}  {when:<8.4g}  {torque:12.4g}  {then:<8.4g}")
        return "\n".join(rows)


@checked
def reaction_envelope(
    mechanism: Mechanism,
    state: AbstractStates,
    names: Sequence[str] | None = None,
    multipliers: Annotated[Float[Array, "*batch ns nc"] | None, unjudged] = None,
) -> ReactionEnvelope:
    """Find the largest force and the largest torque of each joint over a motion, and when they act.

        found = mbd.reports.reaction_envelope(mechanism, sol)
        print(found)

    **Arguments:** `state`: a `Solution` or a `Plan`. `names`: of the joints, by default all.
    `multipliers`: by default those of the motion. For states without, `inverse_dynamics` finds
    them.

    **Returns:** a `ReactionEnvelope`. Torques are about the origin of the joint's frame on its last
    body, as in `reactions`. With redundant rows only parts of the reactions are unique: see
    `unique_reactions`.

    **Raises:** as `reactions`.
    """
    names = [joint.name for joint in mechanism.joints] if names is None else list(names)
    t, q, v = points_of(mechanism, state)
    multipliers = multipliers_of(mechanism, state, multipliers)
    choices = tuple((name, mechanism.joint(name).bodies[-1], None, None) for name in names)
    return _envelope(tuple(names), t, _reactions(mechanism, choices, t, q, v, multipliers))


@eqx.filter_jit
def _envelope(names: tuple[str, ...], t: Array, wrenches: list[Wrench]) -> ReactionEnvelope:
    def one(t, x):
        size = jnp.sqrt(jnp.sum(x**2, axis=-1))
        place = jnp.argmax(size, axis=0)
        return jnp.max(size, axis=0), place, t[place]

    def largest(i):
        vectors = jnp.stack([wrench[i] for wrench in wrenches], axis=-2)
        return batched(one, (t, 1), (vectors, 3))

    (force, at, when), (torque, place, then) = largest(0), largest(1)
    return ReactionEnvelope(force, at, when, torque, place, then, names)
