"""Placement of bodies by joint coordinates, along a spanning tree from the ground."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import (
    array_namespace,
    compiled_quickly,
    inverse,
    stop_gradient,
    tree_where,
)
from .._coordinates import (
    quaternion_conjugate,
    quaternion_exp,
    quaternion_product,
    quaternion_rotate,
)
from .._inputs import Numbers, checked, finite
from .._printed import printed
from .._raising import error_if
from .._system import State
from .._types import DType, RealScalarLike
from .body import GROUND
from .element import Groups, unnamed
from .joint_coordinates import joint_with_coordinates
from .joints import AbstractJoint
from .mechanism import Mechanism
from .pose import Pose, Twist, with_axes
from .relative import shortest

_T = TypeVar("_T")

# Newton steps to close the joint, parts of the way to the coordinates, and steps for each part.
_CLOSING, _PARTS, _STEPS = 12, 8, 3
# Largest rotation in one step [rad].
_MAX_TURN = 0.5


@printed
class Placement(eqx.Module):
    """Names of the joints whose `coordinates` and whose `rates` `place_bodies` was given."""

    coordinates: tuple[str, ...] = eqx.field(static=True)
    rates: tuple[str, ...] = eqx.field(static=True)

    def __str__(self) -> str:
        given = (("coordinates", self.coordinates), ("rates", self.rates))
        parts = [f"{what} of {', '.join(names)}" for what, names in given if names]
        return f"placed by {' and '.join(parts)}" if parts else "placed as the bodies were given"


class _Wanted(NamedTuple):
    """Coordinates of a joint, or their rates. `given` is a value, so that one program is compiled
    for joints with and without them."""

    given: Any
    value: Any


class _Edge(NamedTuple):
    """A joint of the tree. Frame number `child` is on the body farther from the root."""

    joint: AbstractJoint
    child: int

    @property
    def parent_body(self) -> str:
        return self.joint.bodies[1 - self.child]

    @property
    def child_body(self) -> str:
        return self.joint.bodies[self.child]


@checked
def place_bodies(
    mechanism: Mechanism,
    coordinates: Mapping[str, Numbers],
    rates: Mapping[str, Numbers] | None = None,
    t: RealScalarLike = 0.0,
) -> State:
    """Place bodies by coordinates and rates of joints (forward kinematics). Loops stay open.

        Phi_j(A, B, t) = 0,    c_j(A, B) = coordinates[j],

    for each joint from the ground outwards, along a spanning tree: first the named joints, then the
    others, in the order given. Velocities likewise satisfy Phi_j' = Psi_j = 0 and c_j' = rates[j].

        state = mbd.place_bodies(mechanism, {"shoulder": 0.3, "elbow": -1.2}, rates={"elbow": 2.0})

    All else stays as the bodies were given. Joints without coordinates keep the relative pose (the
    nearest one that closes them), and joints without rates the relative velocity. Parts without a
    joint to the ground keep the pose of their first body. Joints outside the tree, which close
    loops, stay open. `close_joints(mechanism, state)` closes them from there, and keeps what was
    asked for here.

    Where rows and coordinates determine the relative pose, the search starts from coinciding
    frames. So it does not matter how the bodies were given.

    **Arguments:**

    - `coordinates`: name of a joint -> its coordinates [m, rad], as in
      `Mechanism.joint_coordinates`, or a number if there is only one. Angles may exceed a turn.
    - `rates`: name of a joint -> their time derivatives [m/s, rad/s].
    - `t`: time [s].

    **Returns:** a `State`, whose derivative with respect to coordinates, rates, frames and poses is
    the implicit one. `state.report` names the joints whose coordinates and rates were given.

    **Raises:** `ValueError` for unknown names, joints without coordinates, wrong shapes, and joints
    that close a loop of other named joints; a run-time error, which names the joint, if the
    coordinates or the rates cannot be reached.
    """
    rates = {} if rates is None else rates
    for what, table in (("coordinates", coordinates), ("rates", rates)):
        for name, value in table.items():
            _check(mechanism, what, name, value)
    moving = _given(mechanism)
    before, dtype = dict(moving), mechanism.gravity.dtype
    for edge in _tree(mechanism, [*coordinates, *(n for n in rates if n not in coordinates)]):
        name, joint = edge.joint.name, edge.joint
        pair = (edge.parent_body, edge.child_body)
        moved, apart, rates_missed = _placed(
            unnamed(joint),
            np.asarray(edge.child),
            moving[pair[0]],
            [before[x] for x in pair],
            _value(coordinates, joint, dtype),
            _value(rates, joint, dtype),
            jnp.asarray(t, dtype),
        )
        words = f'{type(joint).__name__} "{name}" cannot '
        moved = error_if(moved, apart, 0, [words + "be closed at the coordinates given for it."])
        moving[pair[1]] = error_if(moved, rates_missed, 0, [words + "move at the rates asked for."])
    tables = _joined([moving[name] for name in mechanism.body_stack.names])
    q, v = mechanism.coordinates_of(*tables)
    return State(t, q, v, Placement(tuple(coordinates), tuple(rates)))


@compiled_quickly
def _given(mechanism: Mechanism) -> dict[str, tuple[Pose, Twist]]:
    """Pose and twist of each body and of the ground, by one program instead of many small ones."""
    start = mechanism.state()
    names = (*mechanism.body_stack.names, GROUND)
    return {x: (mechanism.pose(start.q, x), mechanism.twist(start.v, x)) for x in names}


@compiled_quickly
def _joined(bodies: list[tuple[Pose, Twist]]) -> tuple[Array, Array]:
    """Poses and twists of all bodies as tables."""
    poses, twists = ([jnp.concatenate(x) for x in parts] for parts in zip(*bodies, strict=True))
    return jnp.stack(poses, axis=-1), jnp.stack(twists, axis=-1)


# --- which joints -------------------------------------------------------------------------------


def _check(mechanism: Mechanism, what: str, name: str, value: Numbers) -> None:
    joint = joint_with_coordinates(mechanism, name)
    shape = finite(f'`{what}` of "{name}"', value, shape=None).shape
    if shape != (joint.count(),) and not (shape == () and joint.count() == 1):
        raise ValueError(
            f'`{what}` of "{name}" must have shape ({joint.count()},), but have {shape}.'
        )


def _value(table: Mapping[str, Numbers], joint: AbstractJoint, dtype: DType) -> _Wanted:
    given = joint.name in table
    value = table[joint.name] if given else np.zeros(joint.count())
    xp = array_namespace(value)
    return _Wanted(np.asarray(given), xp.atleast_1d(xp.asarray(value, dtype)))


def _tree(mechanism: Mechanism, named: list[str]) -> list[_Edge]:
    """Joints of a spanning tree, from the roots outwards."""
    joints = [j for j in mechanism.joints if isinstance(j, AbstractJoint)]
    first = [j for j in joints if j.name in named]
    kept, groups = [], Groups()
    for joint in [*first, *(j for j in joints if j.name not in named)]:
        if groups.join(*joint.bodies):
            kept.append(joint)
        elif joint.name in named:
            raise ValueError(
                f'"{joint.name}" closes a loop of joints whose coordinates are given, so that its '
                "own cannot be chosen. Leave it out, and close the loop by `close_joints`."
            )
    edges, reached = [], set()
    for start in (GROUND, *mechanism.body_stack.names):
        fresh = [] if start in reached else [start]
        while fresh:
            here = fresh.pop(0)
            reached.add(here)
            for joint in kept:
                if here in joint.bodies:
                    edge = _Edge(joint, 1 - joint.bodies.index(here))
                    if edge.child_body not in reached:
                        edges.append(edge)
                        fresh.append(edge.child_body)
    return edges


# --- one joint ----------------------------------------------------------------------------------


@compiled_quickly
def _placed(joint, child, parent, old, wanted, wanted_rates, t):
    """Pose and twist of the child, and whether the equations of position and of velocity remain
    unsatisfied."""
    (pose_p, twist_p), ((old_p, old_twist_p), (old_c, old_twist_c)) = parent, old
    local_p, local_c = _either(child, joint.frames)
    moved = pose_p.compose(old_p.relative(old_c))  # the given relative pose
    near = pose_p.compose(local_p)
    equations = _Equations(joint, child, near, wanted, t)
    frame, missed = _solved(equations, moved.compose(local_c))
    pose = _without(frame, local_c)
    # The velocity likewise: the given relative motion in the axes of the parent, then a correction.
    arm = old_c.position - old_p.position
    linear = old_p.local_direction(old_twist_c.linear - old_twist_p.at(arm))
    angular = old_p.local_direction(old_twist_c.angular - old_twist_p.angular)
    twist = Twist(
        twist_p.at(pose.position - pose_p.position) + pose_p.direction(linear),
        twist_p.angular + pose_p.direction(angular),
    )
    at_p = Twist(twist_p.at(near.position - pose_p.position), twist_p.angular)
    arm = frame.position - pose.position

    def residual(w):
        moving = Twist(Twist(w[:3], w[3:]).at(arm), w[3:])
        return equations.rates(frame, at_p, moving, wanted_rates)

    def improved(state, _):
        w, _ = state
        r, along = jax.linearize(residual, w)
        J = jax.vmap(along, out_axes=1)(jnp.eye(6, dtype=w.dtype))
        return (w - _least(J, r), jnp.max(jnp.abs(r), initial=0.0)), None

    w = jnp.concatenate(twist)
    # Only nonholonomic rows may be nonlinear in w. The second step removes rounding errors, and the
    # last one evaluates the residual.
    steps = 11 if joint.velocity_rows else 3
    (w, left), _ = jax.lax.scan(improved, (w, jnp.zeros((), w.dtype)), length=steps)
    size = 1 + jnp.max(jnp.abs(joint.frame_a.position)) + jnp.max(jnp.abs(pose.position))
    limit = 1e-9 if size.dtype == jnp.float64 else 1e-4
    speed = 1 + jnp.max(jnp.abs(w))
    # Negated, so that NaN counts as missed.
    return (pose, Twist(w[:3], w[3:])), ~(missed < limit * size), ~(left < limit * size * speed)


def _either(child: Array, pair: tuple[_T, _T]) -> tuple[_T, _T]:
    """The members of `pair`, swapped if `child` is 0. The function is its own inverse."""
    a, b = pair
    return tree_where(child == 1, a, b), tree_where(child == 1, b, a)


class _Equations(eqx.Module):
    """Rows and coordinates of a joint as functions of the pose of one of its frames."""

    joint: AbstractJoint
    child: Array
    near: Pose
    wanted: _Wanted
    t: Array

    def both(self, near, frame):
        return _either(self.child, (near, frame))

    def poses(self, frame: Pose) -> tuple[Pose, Pose]:
        return self.both(with_axes(self.near), with_axes(frame))

    def rows(self, frame: Pose) -> Array:
        return self.joint.equations(self.poses(frame), self.t)

    def ahead(self, frame: Pose) -> Array:
        """Difference to the wanted coordinates, angles within half a turn."""
        if self.joint.count() == 0:
            return jnp.zeros(0, self.t.dtype)
        given, value = self.wanted
        here = self.joint.coordinates(*_evaluated_at(given, self.poses(frame)))
        return jnp.where(given, shortest(value - here, self.joint.angles), 0.0)

    def linearised(self, frame: Pose) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """`rows` and `ahead`, and their derivatives along displacements and small rotations."""
        at = with_axes(frame)
        values, along = jax.linearize(lambda frame: (self.rows(frame), self.ahead(frame)), at)
        directions = jnp.eye(6, dtype=frame.position.dtype)
        return values, jax.vmap(lambda d: along(at.rate(Twist.of(d))), out_axes=1)(directions)

    def rates(self, frame: Pose, near_twist: Twist, twist: Twist, wanted: _Wanted) -> Array:
        """Phi', Psi, and the rates of the coordinates minus the wanted ones."""
        near, frame = with_axes(self.near), with_axes(frame)
        _, phidot = jax.jvp(
            lambda near, frame, t: self.joint.equations(self.both(near, frame), t),
            (near, frame, self.t),
            (near.rate(near_twist), frame.rate(twist), jnp.ones_like(self.t)),
        )
        poses, twists = self.both(near, frame), self.both(near_twist, twist)
        found = [phidot, self.joint.velocity_equations(poses, twists, self.t)]
        if self.joint.count():
            rates = self.joint.rates(*_evaluated_at(wanted.given, poses), *twists)
            found.append(jnp.where(wanted.given, rates - wanted.value, 0.0))
        return jnp.concatenate(found)


def _evaluated_at(given: Array, poses: tuple[Pose, Pose]) -> tuple[Pose, Pose]:
    """The poses, or two that coincide if no coordinates are given. There all coordinates have
    derivatives, so that unused ones cannot give NaN."""
    still = with_axes(Pose.identity(poses[0].position.dtype))
    return tree_where(given, poses, (still, still))


@eqx.filter_custom_jvp
def _solved(equations: _Equations, given: Pose) -> tuple[Pose, Array]:
    """The frame that satisfies the equations, by Newton's method, and the largest residual."""
    begin = tree_where(_near_decides(equations), equations.near, given)
    # One more step after closing, to evaluate the coordinates there. At the end two steps with
    # rotations of any size, and a third that evaluates the residual.
    steps = _CLOSING + 1 + (_PARTS + 1) * _STEPS + 3

    # First the joint is closed, with any coordinates. Then these move to the wanted ones.
    def improved(i, state):
        frame, goal, _ = state
        (rows, ahead), (J, along) = equations.linearised(frame)
        goal = jnp.where(i <= _CLOSING, ahead, goal)
        part = jnp.clip((i - _CLOSING - 1) // _STEPS + 1, 0, _PARTS).astype(goal.dtype)
        left, weight = 1 - part / _PARTS, (i > _CLOSING).astype(goal.dtype)
        beyond = left * goal - ahead
        if beyond.size:
            beyond = shortest(beyond, equations.joint.angles)
        residual = jnp.concatenate([rows, weight * beyond])
        d = -_least(jnp.concatenate([J, -weight * along]), residual)
        turn = jnp.sqrt(jnp.sum(d[3:] ** 2))
        shorter = jnp.minimum(1.0, _MAX_TURN / jnp.maximum(turn, 1e-30)).astype(d.dtype)
        d = d * jnp.where(i < steps - 3, shorter, 1.0)
        turned = quaternion_product(quaternion_exp(d[3:]), frame.orientation)
        turned = turned / jnp.sqrt(jnp.sum(turned**2))
        return Pose(frame.position + d[:3], turned), goal, jnp.max(jnp.abs(residual), initial=0.0)

    dtype, coordinates = given.position.dtype, equations.joint.count()
    start = begin, jnp.zeros(coordinates, dtype), jnp.full((), jnp.inf, dtype)
    frame, _, missed = jax.lax.fori_loop(0, steps, improved, start)
    return frame, missed


@_solved.def_jvp
def _solved_jvp(primals, tangents):
    """The residual stays 0. Along the remaining freedoms the frame moves with the given one."""
    equations, given = primals
    d_equations, d_given = tangents
    frame, missed = _solved(equations, given)
    turn = quaternion_product(frame.orientation, quaternion_conjugate(given.orientation))
    d_given = _or_zeros(d_given, given)
    carried = Pose(d_given.position, quaternion_product(turn, d_given.orientation))
    along_p = jnp.sum(frame.orientation * carried.orientation)  # no part of a rotation
    carried = carried._replace(orientation=carried.orientation - along_p * frame.orientation)
    d_frame = tree_where(_near_decides(equations), _or_zeros(None, given), carried)

    def residual(equations, frame):
        return jnp.concatenate([equations.rows(frame), -equations.ahead(frame)])

    _, d_residual = eqx.filter_jvp(residual, (equations, frame), (d_equations, d_frame))
    _, (J, along) = equations.linearised(frame)
    d = -_least(jnp.concatenate([J, -along]), d_residual)
    return (frame, missed), (jax.tree.map(jnp.add, d_frame, _moving(frame, d)), None)


def _or_zeros(tangent: Pose | None, primal: Pose) -> Pose:
    zeros = jax.tree.map(jnp.zeros_like, primal)
    return (
        zeros
        if tangent is None
        else Pose(*(z if d is None else d for z, d in zip(zeros, tangent, strict=True)))
    )


def _near_decides(equations: _Equations) -> Array:
    """Whether the rows and the given coordinates determine the frame."""
    rows = jax.eval_shape(equations.rows, equations.near).shape[0]
    asked = jnp.asarray(equations.wanted.given)
    return asked & (rows + equations.joint.count() >= 6)


def _moving(frame: Pose, d: Array) -> Pose:
    """The derivative of the frame along a displacement and a small rotation."""
    omega = jnp.concatenate([jnp.zeros_like(d[:1]), d[3:]])
    return Pose(d[:3], quaternion_product(omega, frame.orientation) / 2)


def _least(A: Array, r: Array) -> Array:
    """x of least norm with A x = r: A^T (A A^T + eps)^-1 r. The eps matters only for redundant rows
    and singular poses. This is faster to compile and to differentiate than a pseudoinverse."""
    eps = 1e-14 if A.dtype == jnp.float64 else 1e-6
    G = A @ A.T
    G = G + eps * (1 + jnp.trace(G)) * jnp.eye(G.shape[0], dtype=A.dtype)

    def solve(_, r):
        return inverse(stop_gradient(G))[0] @ r

    return A.T @ jax.lax.custom_linear_solve(lambda x: G @ x, r, solve, symmetric=True)


def _without(frame: Pose, local: Pose) -> Pose:
    """The pose of a body from a frame on it."""
    orientation = quaternion_product(frame.orientation, quaternion_conjugate(local.orientation))
    return Pose(frame.position - quaternion_rotate(orientation, local.position), orientation)
