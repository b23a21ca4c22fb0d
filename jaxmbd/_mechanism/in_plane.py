"""Joints in a plane: which of their rows act there.

In a plane some rows of a joint are zero at all poses, and others depend on each other. They are
left out when the mechanism is built. Reactions against the plane are not known then.

Heights along the normal of the plane are left out too: d is the vector in the plane from the origin
of frame a to frame b. A pair holds some of

    e_1 . d, e_2 . d   (x, y: e_1 and e_2 are the axes of the plane, as they turn with body a),
    z . d              (along: the axis z of frame a is in the plane),
    (n x z) . d        (across: likewise),
    2 sin(delta / 2)   (turn_z: the frames are turned against each other by delta).

They are zero where the rows of the pair in space are, which are combinations of them.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import is_known, is_traced, need_known, to_jax
from .body import GROUND, Body
from .joints import AbstractConstraint, AbstractPair
from .linearise import linearised
from .plane import Flat, Plane, rotation
from .pose import Twist

# Largest part of a velocity that may point out of the plane, relative to the velocity.
_ROUNDING = 1e-5

# Random poses at which rows are compared, and the part of a row that counts as zero there.
_POSES, _ZERO = 4, 1e-9


def check_motion(plane: Plane, bodies: Sequence[Body]) -> None:
    """**Raises:** `ValueError` for bodies that move out of the plane, as far as known."""
    x, y, n = plane.axes
    for body in bodies:
        if not is_known(body.twist):
            continue
        velocity, omega = map(np.asarray, body.twist)
        for what, value, out in (
            ("velocity", velocity, [n @ velocity]),
            ("angular velocity", omega, [x @ omega, y @ omega]),
        ):
            if np.linalg.norm(out) > _ROUNDING * (1 + np.linalg.norm(value)):
                raise ValueError(
                    f'Body "{body.name}" has the {what} {value.tolist()}, which leads out of the '
                    f"plane with normal {n.tolist()}. Give one in the plane, or build the "
                    "mechanism without `plane`."
                )


def kept_rows(
    joints: Sequence[AbstractConstraint], flat: Flat, names: tuple[str, ...]
) -> list[Any]:
    """For each joint, what acts in the plane: names of components of a lower pair, indices of
    holonomic and of nonholonomic rows of others, or `None` for all rows.

    **Raises:** `ValueError` for a joint that does not fit the plane."""
    every, columns = flat.with_ground(), (*names, GROUND)
    found = []
    for joint in joints:
        ends = [every.one(columns.index(name)) for name in joint.bodies]
        if isinstance(joint, AbstractPair):
            found.append(held_in_plane(joint, flat.plane, ends))
        else:
            found.append(_independent(joint, ends, [name != GROUND for name in joint.bodies]))
    return found


def _independent(joint: AbstractConstraint, ends: Sequence[Flat], moves: Sequence[bool]) -> Any:
    """Indices of the rows of a joint that do not depend on others in the plane."""
    dtype = ends[0].height.dtype
    o = to_jax(np.zeros(3, dtype))
    t = jax.ShapeDtypeStruct((), dtype)
    still = tuple(Twist(o, o) for _ in ends)
    size = [
        jax.eval_shape(lambda t: joint.equations(joint.frames, t), t).size,
        jax.eval_shape(lambda t: joint.velocity_equations(joint.frames, still, t), t).size,
    ]
    if sum(size) <= 1:
        return None
    what = f'{type(joint).__name__} "{joint.name}"'
    need_known(
        (joint, ends),
        f"{what} has several rows, and which of them act in the plane is not known while its "
        "numbers are traced. Build it of known numbers, or use the joints whose rows in a plane "
        "are known: `Revolute`, `Prismatic`, `Spherical`, `Fixed`, and joints of one row.",
    )
    random = np.random.default_rng(0)
    q, v = random.uniform(-1, 1, (2, _POSES, len(ends), 3))
    q, v = (np.where(np.array(moves)[:, None], x, 0.0) for x in (q, v))
    # It compiles constants one by one.
    with jax.ensure_compile_time_eval() if is_traced() else contextlib.nullcontext():
        found = _rows_at(joint, ends, tuple(moves), jnp.asarray(q, dtype), jnp.asarray(v, dtype))
    return tuple(_chosen(what, *map(np.asarray, x)) for x in found)


def _chosen(what: str, value: np.ndarray, J: np.ndarray) -> tuple[int, ...]:
    """Indices of independent rows, of values `(poses, rows)` and their Jacobians `(poses, rows,
    nv)`."""
    rows = J.shape[1]
    table = np.moveaxis(J, 1, 0).reshape(rows, J.shape[0] * J.shape[2])
    zero = _ZERO if J.dtype == np.float64 else 1e-4
    size = max(float(np.abs(table).max(initial=0.0)), 1.0)
    rest, chosen = table.copy(), []
    while True:
        left = np.linalg.norm(rest, axis=1)
        if rows == 0 or left.max() <= zero * size:
            break
        i = int(np.argmax(left))
        chosen.append(i)
        direction = rest[i] / left[i]
        rest = rest - np.outer(rest @ direction, direction)
    chosen = sorted(chosen)
    for i in set(range(rows)) - set(chosen):
        parts, *_ = np.linalg.lstsq(table[chosen].T, table[i], rcond=None)
        off = value[:, i] - value[:, chosen] @ parts
        if np.abs(off).max(initial=0.0) > 1e-5:
            raise ValueError(
                f"{what} does not fit the plane: its row {i} is {float(off[0]):.6g} there when its "
                "other rows are zero, whatever the pose. Its frames or axes lead out of the plane."
            )
    return tuple(chosen)


@eqx.filter_jit
def _rows_at(
    joint: AbstractConstraint, ends: Sequence[Flat], moves: tuple[bool, ...], q: Array, v: Array
) -> Any:
    """Values and Jacobians of both kinds of rows at planar poses and velocities."""

    def at(q, v):
        qs = [end.poses(x) for end, x in zip(ends, q, strict=True)]
        vs = [end.twists(x) for end, x in zip(ends, v, strict=True)]
        t = jnp.zeros((), q.dtype)
        rows = linearised(joint, joint.equations, joint.velocity_equations, qs, vs, t, moves)
        J = [end.restricted(block, 1) for end, block in zip(ends, rows.J, strict=True)]
        J, nh = jnp.concatenate(J, axis=1), rows.phi.shape[0]
        return (rows.phi, J[:nh]), (rows.velocity[nh:], J[nh:])

    return jax.vmap(at)(q, v)


# Largest sine or cosine of an angle that counts as zero. Axes typed with six digits pass.
_ALIGNED = 1e-5


def held_in_plane(joint: AbstractPair, plane: Plane, ends: Sequence[Flat]) -> tuple[str, ...]:
    """The components that the rows of a pair hold in the plane. `ends`: of its two bodies.

    **Raises:** `ValueError` for a pair that does not fit the plane, and for one whose kind does not
    say how its axis lies, if that is not known."""
    held = set(joint.holds)
    what, normal = f'{type(joint).__name__} "{joint.name}"', list(plane.normal)
    offsets, turns = {"x", "y", "z"} <= held, {"turn_x", "turn_y", "turn_z"} <= held
    tilts, sides = {"tilt_x", "tilt_y"} <= held, {"x", "y"} <= held
    if "arms" in held or any(name.startswith("turn") for name in held) and not turns:
        raise ValueError(
            f"{what} turns about more than the normal of the plane, {normal}. Use "
            "`Revolute` in a planar mechanism."
        )
    # Where the axis must be; it may be at both places for `None`.
    needed = None
    if tilts and offsets:
        needed = "normal"
    elif sides and turns and not offsets:
        needed = "in the plane"
    where = needed
    if tilts or not offsets and held & {"x", "y", "z"}:
        where = _axis(joint, plane, ends) or needed
        if where is None:
            raise ValueError(
                f"{what} may have its axis along the normal of the plane or in the plane, which "
                "decides what it holds. Its frames are traced: give known orientations and axes, "
                "or use `Revolute` or `Prismatic`, whose axes are clear."
            )
    if needed == "normal" != where:
        raise ValueError(
            f"{what} must have its axis along the normal of the plane with normal {normal}, but it "
            "is in the plane."
        )
    if needed == "in the plane" != where:
        raise ValueError(
            f"{what} must have its axis in the plane with normal {normal}, but it is along its "
            "normal. `Fixed` holds both bodies together."
        )
    if turns or tilts:
        _check_aligned(what, joint, plane, ends)
    found = []
    if offsets or sides and where == "normal":
        found = ["x", "y"]
    elif where != "normal":
        found = ["along"] * ("z" in held) + ["across"] * sides
    return (*found, "turn_z") if turns or tilts and where == "in the plane" else tuple(found)


def _axis(joint: AbstractPair, plane: Plane, ends: Sequence[Flat]) -> str | None:
    """Where the axis of frame a is, `None` if it is not known."""
    own, orientation = ends[0].own, joint.frame_a.orientation
    if not is_known((own, orientation)):
        return None
    axis = np.asarray(own) @ rotation(orientation)[:, 2]
    if np.linalg.norm(axis[:2]) < _ALIGNED:
        return "normal"
    if abs(axis[2]) < _ALIGNED:
        return "in the plane"
    degrees = np.degrees(np.arccos(min(abs(axis[2]), 1.0)))
    raise ValueError(
        f'{type(joint).__name__} "{joint.name}" must have its axis along the normal of the plane, '
        f"{list(plane.normal)}, or in the plane, but it is {degrees:.6g} degrees off the normal."
    )


def _check_aligned(what: str, joint: AbstractPair, plane: Plane, ends: Sequence[Flat]) -> None:
    """**Raises:** `ValueError` unless a rotation about the normal aligns the frames, if known."""
    known = (ends[0].own, ends[1].own, joint.frame_a.orientation, joint.frame_b.orientation)
    if not is_known(known):
        return
    one, other = (
        np.asarray(known[0]) @ rotation(known[2]),
        np.asarray(known[1]) @ rotation(known[3]),
    )
    tilt = np.linalg.norm((other @ one.T)[:2, 2])
    if "tilt_x" in joint.holds:  # only the axes must be aligned
        tilt = abs(other[2, 2] - one[2, 2])
    if tilt > _ALIGNED:
        raise ValueError(
            f"{what} has frames that no rotation about the normal of the plane, "
            f"{list(plane.normal)}, aligns: they are tilted by "
            f"{np.degrees(np.arcsin(min(tilt, 1.0))):.6g} degrees."
        )
