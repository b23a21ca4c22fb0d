"""Generalised forces in joint coordinates."""

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..._compiler import is_known
from ..._coordinates import dot
from ..._inputs import checked
from ..._printed import printed
from ..._raising import raise_failure
from ..._results import RESULTS
from ..._search import nonzero, redundancy
from ..._system import AbstractStates, State
from ..batching import batched
from ..forces import Wrench
from ..joint_coordinates import joint_rates, joint_with_coordinates
from ..linearise import frame_poses, frame_twists
from ..mechanism import Mechanism
from .violation import dense_jacobian, points_of

_ByJoint = dict[str, Float[Array, "*batch coordinates"]]


@printed
class GeneralisedForces(eqx.Module):
    """Generalised forces in the coordinates of joints [N, N m]; `print` it.

    **Fields:** tables with the name of each joint -> Q of its coordinates, `(*batch, k)`,

    - `total`: of all applied forces: gravity, force elements and `wrenches`.
    - `gravity`: of the weights.
    - `elements`: name of each force element -> such a table.
    - `given`: name of each body in `wrenches` -> such a table.
    - `partial_velocities`: dv/dx' of all coordinates x of the joints, one after the other,
      `(*batch, nv, n)`, at fixed time. Its transpose times any f of `Mechanism.force` is Q of that.
    - `result`: `RESULTS.successful`, or `joints_not_independent`.
    """

    total: _ByJoint
    gravity: _ByJoint
    elements: dict[str, _ByJoint]
    given: dict[str, _ByJoint]
    partial_velocities: Float[Array, "*batch nv n"]
    result: RESULTS

    def __str__(self) -> str:
        if not is_known(self.partial_velocities):
            return f"generalised forces of the joints {list(self.total)}, traced"
        parts = {"total": self.total, "gravity": self.gravity}
        parts |= {f'"{name}"': own for name, own in self.elements.items()}
        parts |= {f'wrench on "{name}"': own for name, own in self.given.items()}
        many = "" if self.partial_velocities.ndim == 2 else ", the largest in size"
        rows = [f"generalised forces [N, N m]{many}:"]
        for joint in self.total:
            rows.append(f'joint "{joint}"')
            for name, own in parts.items():
                Q = np.asarray(own[joint])
                if many:
                    Q = np.max(np.abs(Q), axis=tuple(range(Q.ndim - 1)), initial=0.0)
                rows.append(f"  {name}: {', '.join(f'{x:.6g}' for x in Q)}")
        return "\n".join(rows)


@checked
def generalised_forces(
    mechanism: Mechanism,
    state: AbstractStates,
    joints: Sequence[str] | None = None,
    *,
    u: PyTree = None,
    wrenches: Mapping[str, Wrench] | None = None,
    throw: bool = True,
) -> GeneralisedForces:
    r"""The generalised forces of the applied forces in the coordinates x of joints, from virtual
    work,

    $$ Q_j = \sum_i F_i \cdot \frac{\partial v_i}{\partial \dot x_j}
    + T_i \cdot \frac{\partial \omega_i}{\partial \dot x_j}, \qquad
    \delta W = \sum_j Q_j\, \delta x_j . $$

    The bodies move with x as the constraints demand, at fixed time. So in a loop the coordinate of
    the crank alone carries the forces on all bodies. Reactions of ideal joints do no work and are
    not in Q, nor are the forces of inertia. In an equilibrium all Q are 0, and the torques of
    motors at the joints that would hold the system are -Q. `inverse_dynamics` gives the inputs
    for an acceleration.

        found = mbd.reports.generalised_forces(mechanism, state)
        found.total["elbow"], found.gravity["elbow"], found.elements["spring"]["elbow"]

    **Arguments:**

    - `state`: a `State` or a `Solution`, with any leading axes.
    - `joints`: names of joints whose coordinates describe the motion: independent, one for each
      freedom. By default all joints with coordinates, as in an open chain.
    - `u`: the inputs of actuators, for all states.
    - `wrenches`: name of a body -> a `Wrench` (force [N] and torque [N m] about the origin of the
      body, in world axes) that acts beside the forces of the mechanism.
    - `throw`: raise if `result` is not successful.

    **Returns:** `GeneralisedForces`; differentiable.

    **Raises:** `ValueError` for unknown joints and bodies, and for joints without coordinates; a
    run-time error if the coordinates are not independent or do not describe the motion.

    Reference: Kane and Levinson (1985), Dynamics: Theory and Applications, sections 2.14 (partial
    velocities) and 4.4 (generalised active forces).
    """
    if joints is None:
        joints = [x.name for x in mechanism.joints if x.count()]
    for name in joints:
        joint_with_coordinates(mechanism, name)
    wrenches = {} if wrenches is None else dict(wrenches)
    t, q, v = points_of(mechanism, state)
    for name, wrench in wrenches.items():
        mechanism.tables.column(name)
        wrenches[name] = Wrench(*(jnp.asarray(x, q.dtype) for x in wrench))
    z = getattr(state, "z", None)
    found = _generalised(mechanism, tuple(joints), t, q, v, z, u, wrenches)
    return raise_failure(found, found.result) if throw else found


@eqx.filter_jit
def _generalised(mechanism, joints, t, q, v, z, u, wrenches) -> GeneralisedForces:
    names, pushes = list(wrenches), list(wrenches.values())

    def one(t, q, v, z, *pushes):
        still = jnp.zeros_like(v)
        coordinates = [mechanism.joint_coordinates(q, name).shape[0] for name in joints]
        starts = np.cumsum(coordinates, dtype=int) - np.array(coordinates, int)

        def rates(v):
            own = [joint_rates(mechanism, State(t, q, v), name) for name in joints]
            return jnp.concatenate([*own, jnp.zeros(0, v.dtype)])

        R = jax.jacfwd(rates)(still)
        rows = jnp.concatenate([dense_jacobian(mechanism, t, q, v), R])
        n = sum(coordinates)
        unit = jnp.concatenate([jnp.zeros((rows.shape[0] - n, n), v.dtype), jnp.eye(n)])
        share = redundancy(v.dtype)
        B = jnp.linalg.pinv(rows, rtol=share) @ unit
        sizes = jnp.linalg.svd(jax.lax.stop_gradient(rows), compute_uv=False)
        described = jnp.sum(nonzero(sizes, share)) == v.shape[0]
        independent = jnp.max(jnp.abs(rows @ B - unit), initial=0.0) < jnp.sqrt(share)
        result = RESULTS.where(
            described & independent, RESULTS.successful, RESULTS.joints_not_independent
        )

        def by_joint(Q):
            own = zip(joints, starts, coordinates, strict=True)
            return {name: Q[start : start + k] for name, start, k in own}

        elements = {
            name: by_joint(Q) for name, Q in _of_elements(mechanism, t, q, v, z, u, B).items()
        }
        given = {}
        for name, push in zip(names, pushes, strict=True):
            moved = jax.vmap(lambda b, name=name: mechanism.twist(b, name), in_axes=1)(B)
            Q = moved.linear @ push.force + moved.angular @ push.torque
            given[name] = by_joint(Q)
        gravity = by_joint(B.T @ mechanism.inertial_force(q, still))
        parts = [gravity, *elements.values(), *given.values()]
        total = jax.tree.map(lambda *Q: sum(Q[1:], Q[0]), *parts)
        return GeneralisedForces(total, gravity, elements, given, B, result)

    flat = [x for push in pushes for x in push]

    def of_arrays(t, q, v, *flat):
        flat, z = (flat[:-1], flat[-1]) if internal else (flat, None)
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return one(t, q, v, z, *(Wrench(*pair) for pair in pairs))

    internal = z is not None
    flat = [*flat, z] if internal else flat
    return batched(of_arrays, (t, 0), (q, 1), (v, 1), *((x, 1) for x in flat))


def _of_elements(mechanism, t, q, v, z, u, B) -> dict[str, Array]:
    """Name of each force element -> the power of its forces on the velocities in the columns of
    B."""

    def of_element(element, qs, vs, moved, *z):
        poses, twists = frame_poses(element, qs), frame_twists(element, qs, moved)
        wrenches = element.wrenches(poses, frame_twists(element, qs, vs), t, u, *z)
        pairs = zip(wrenches, twists, strict=True)
        powers = [dot(w.force, x.linear) + dot(w.torque, x.angular) for w, x in pairs]
        return sum(powers, jnp.zeros((), q.dtype))

    found: dict[int, tuple[str, Array]] = {}
    parts = mechanism.internal_parts(z, q.dtype)
    for forces, own in zip(mechanism.force_stacks, parts, strict=True):

        def powers(b, forces=forces, own=own):
            return mechanism.tables.map(forces, of_element, q, v, b, own=own)

        values = jax.vmap(powers, 1)(B)
        for i, place in enumerate(forces.places):
            found[place] = forces.names[i], values[:, i]
    return dict(found[place] for place in sorted(found))
