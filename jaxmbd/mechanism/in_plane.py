"""Joints in a plane: which of their rows act there, and pairs, all kinds of which are evaluated at
once.

In a plane some rows of a joint are zero at all poses, and others depend on each other. They are
left out when the mechanism is built. Reactions against the plane are not known then.

Heights along the normal of the plane are left out too: d is the vector in the plane from the origin
of frame a to that of frame b. R is the rotation of body a, and delta the angle by which the frames
are turned about the normal against each other. A pair constrains some of

    (R^T d)_x, (R^T d)_y   (x, y: along the axes of the plane, as they turn with a),
    (R z) . d              (along: the axis z of frame a is in the plane),
    (R (n x z)) . d        (across: likewise),
    2 sin(delta / 2)       (turn).

They are zero where the rows of the pair in space are, which are combinations of them, see
`held_in_plane`. As in `joint_rows.py`, derivatives are in closed form. Arrays have the components
of vectors first and one entry for each joint last.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import all_concrete, contracted, is_concrete, is_traced, to_jax
from .._coordinates import algebra, apply_matrix, components
from .body import GROUND, Body
from .joints import AbstractConstraint, AbstractPair
from .linearise import linearised
from .plane import Flat, Plane
from .pose import Pose, Twist

# Largest part of a velocity that may point out of the plane, relative to the velocity.
_ROUNDING = 1e-5

# Random poses at which rows are compared, and the part of a row that counts as zero there.
_POSES, _ZERO = 4, 1e-9


def check_motion(plane: Plane, bodies: Sequence[Body]) -> None:
    """**Raises:** `ValueError` for bodies that move out of the plane, as far as known."""
    x, y, n = plane.axes
    for body in bodies:
        if not all(map(is_concrete, body.twist)):
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
    if not all_concrete((joint, ends)):
        raise ValueError(
            f"{what} has several rows, and which of them act in the plane is not known while its "
            "numbers are traced. Build it of known numbers, or use the joints whose rows in a "
            "plane are known: `Revolute`, `Prismatic`, `Spherical`, `Fixed`, and joints of one row."
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


# In the order of evaluation.
PLANAR_NAMES = ("x", "y", "along", "across", "turn")

# Largest sine or cosine of an angle that counts as zero. Axes typed with six digits pass.
_ALIGNED = 1e-5


class FlatEnds(NamedTuple):
    """All pairs at one end: positions of the bodies, cosine and sine of half their angles, how they
    lie in the plane, and the frames on them."""

    position: Float[Array, "2 k"]
    half: Float[Array, "2 k"]
    flat: Flat
    frame: Pose


class PlanarPairs(NamedTuple):
    """Pairs at one q, with the components `names`.

    - `L`: the directions in the plane of the offsets among them.
    - `apart`: d. `arm_a`, `arm_b`: from the origins of the bodies to that of frame b.
    - `half`: |cos(delta / 2)|, and sin(delta / 2) with the sign that goes with it.
    """

    names: tuple[str, ...]
    L: Float[Array, "2 shifts k"]
    apart: Float[Array, "2 k"]
    arm_a: Float[Array, "2 k"]
    arm_b: Float[Array, "2 k"]
    half: Float[Array, "2 k"]

    @classmethod
    def at(cls, names: tuple[str, ...], a: FlatEnds, b: FlatEnds) -> "PlanarPairs":
        """Build the pairs from both ends, with `names` in the order of `PLANAR_NAMES`."""
        own_a, arm_b = (
            _turned(_cos_sin(x.half), apply_matrix(x.flat.own[:2], x.frame.position))
            for x in (a, b)
        )
        arm_a = b.position + arm_b - a.position
        c, s = components(_cos_sin(a.half))
        directions = {"x": (c, s), "y": (-s, c)}
        if "along" in names or "across" in names:
            z = algebra.quaternion_product(
                algebra.quaternion_product(a.frame.orientation, _z(a.frame.orientation)),
                algebra.quaternion_conjugate(a.frame.orientation),
            )[1:]
            x, y = components(_turned(_cos_sin(a.half), apply_matrix(a.flat.own[:2], z)))
            directions |= {"along": (x, y), "across": (-y, x)}
        L = [jnp.stack(directions[name]) for name in names if name != "turn"]
        half = a.half
        if "turn" in names:
            half = _between(a, b)
        none = jnp.zeros((2, 0, c.shape[0]), c.dtype)
        return cls(names, jnp.stack(L, axis=1) if L else none, arm_a - own_a, arm_a, arm_b, half)

    def values(self) -> Float[Array, "names k"]:
        """The components, shape `(names, k)`."""
        offsets = _dot(self.L, self.apart)
        return jnp.concatenate([offsets, 2 * self.half[1:]]) if self._turns else offsets

    @property
    def _turns(self) -> bool:
        return "turn" in self.names

    def rates(self, v_a: Float[Array, "3 k"], v_b: Float[Array, "3 k"]) -> Float[Array, "names k"]:
        """J v."""
        at_b = self._of_frame_b(v_a, v_b)
        found = _dot(self.L, at_b - v_a[2:] * _normal_times(self.arm_a))
        return jnp.concatenate([found, self.half[:1] * (v_b - v_a)[2:]]) if self._turns else found

    def drift(self, v_a: Float[Array, "3 k"], v_b: Float[Array, "3 k"]) -> Float[Array, "names k"]:
        """J' v at constant velocities v."""
        omega_a, omega_b = v_a[2:], v_b[2:]
        at_b = self._of_frame_b(v_a, v_b)
        # d/dt of L . (at_b - omega_a n x arm_a), with arm_a' = at_b and L' = omega_a n x L.
        coriolis = 2 * omega_a * _normal_times(at_b) - omega_a**2 * _normal_times(
            _normal_times(self.arm_a)
        )
        found = _dot(self.L, -(omega_b**2) * self.arm_b - coriolis)
        if not self._turns:
            return found
        return jnp.concatenate([found, -((omega_b - omega_a) ** 2) * self.half[1:] / 2])

    def jacobian(self) -> list[Float[Array, "names 3 k"]]:
        """J for the velocities of a, and for those of b."""
        found = []
        for sign, arm in ((-1, self.arm_a), (1, self.arm_b)):
            (lx, ly), (x, y) = components(self.L), components(arm[:, None])
            rows = jnp.stack([lx, ly, x * ly - y * lx], axis=1)
            if self._turns:
                o = jnp.zeros_like(self.half[0])
                rows = jnp.concatenate([rows, jnp.stack([o, o, self.half[0]])[None]])
            found.append(sign * rows)
        return found

    def _of_frame_b(self, v_a: Array, v_b: Array) -> Float[Array, "2 k"]:
        """Velocity of the origin of frame b relative to the origin of body a."""
        return v_b[:2] + v_b[2:] * _normal_times(self.arm_b) - v_a[:2]


def held_in_plane(joint: AbstractPair, plane: Plane, ends: Sequence[Flat]) -> tuple[str, ...]:
    """The components that the rows of a pair hold in the plane. `ends`: of its two bodies.

    **Raises:** `ValueError` for a pair that does not fit the plane, and for one whose kind does not
    say how its axis lies, if that is not known."""
    held = set(joint.holds)
    what = f'{type(joint).__name__} "{joint.name}"'
    offsets, turns = {"x", "y", "z"} <= held, {"turn_x", "turn_y", "turn_z"} <= held
    tilts, sides = {"tilt_x", "tilt_y"} <= held, {"x", "y"} <= held
    if "arms" in held or any(name.startswith("turn") for name in held) and not turns:
        raise ValueError(
            f"{what} turns about more than the normal of the plane, {list(plane.normal)}. Use "
            "`Revolute` in a planar mechanism."
        )
    # Whether the axis matters, and where it must be.
    needed = None
    if offsets and tilts:
        needed = "normal"
    elif sides and turns and not offsets:
        needed = "in the plane"
    matters = needed is not None or not offsets and bool(held & {"x", "y", "z"}) or tilts
    where = _axis(joint, plane, ends) if matters else needed
    if where is None:
        where = needed
    if matters and where is None:
        raise ValueError(
            f"{what} may have its axis along the normal of the plane or in the plane, which "
            "decides what it holds. Its frames are traced: give known orientations and axes, or "
            "use `Revolute` or `Prismatic`, whose axes are clear."
        )
    if needed is not None and where != needed:
        must = "along the normal of" if needed == "normal" else "in"
        remedy = "" if needed == "normal" else " `Fixed` holds both bodies together."
        raise ValueError(
            f"{what} must have its axis {must} the plane with normal {list(plane.normal)}, but "
            f"it is {'in the plane' if where == 'in the plane' else 'along its normal'}.{remedy}"
        )
    if turns or tilts:
        _check_aligned(what, joint, plane, ends)
    if offsets:
        found = ["x", "y"]
    elif where == "normal":
        found = ["x", "y"] if sides else []
    else:
        found = ["along"] * ("z" in held) + ["across"] * sides
    if turns or tilts and where == "in the plane":
        found.append("turn")
    return tuple(found)


def _axis(joint: AbstractPair, plane: Plane, ends: Sequence[Flat]) -> str | None:
    """Where the axis of frame a is, `None` if it is not known."""
    own, orientation = ends[0].own, joint.frame_a.orientation
    if not (is_concrete(own) and is_concrete(orientation)):
        return None
    axis = np.asarray(own) @ _axes(orientation)[:, 2]
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
    if not all(map(is_concrete, known)):
        return
    one, other = np.asarray(known[0]) @ _axes(known[2]), np.asarray(known[1]) @ _axes(known[3])
    tilt = np.linalg.norm((other @ one.T)[:2, 2])
    if "tilt_x" in joint.holds:  # only the axes must be aligned
        tilt = abs(other[2, 2] - one[2, 2])
    if tilt > _ALIGNED:
        raise ValueError(
            f"{what} has frames that no rotation about the normal of the plane, "
            f"{list(plane.normal)}, aligns: they are tilted by "
            f"{np.degrees(np.arcsin(min(tilt, 1.0))):.6g} degrees."
        )


def _axes(orientation: Array) -> np.ndarray:
    w, x, y, z = np.asarray(orientation, float)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _between(a: FlatEnds, b: FlatEnds) -> Float[Array, "2 k"]:
    """Cosine and sine of half the angle between the frames, the cosine >= 0."""
    p, q = (algebra.quaternion_product(x.flat.still, x.frame.orientation) for x in (a, b))
    w, *u = components(algebra.quaternion_product(q, algebra.quaternion_conjugate(p)))
    z = sum(n * x for n, x in zip(a.flat.plane.normal, u, strict=True) if n != 0)
    size = jnp.sqrt(w * w + z * z)
    (ca, sa), (cb, sb) = components(a.half), components(b.half)
    turned = jnp.stack([ca * cb + sa * sb, ca * sb - sa * cb])
    found = _turned(jnp.stack([w / size, z / size]), turned)
    return jnp.where(found[:1] < 0, -found, found)


def _z(like: Float[Array, "4 k"]) -> Float[Array, "4 k"]:
    """The quaternion (0, 0, 0, 1)."""
    return jnp.broadcast_to(jnp.asarray(np.eye(4)[3][:, None], like.dtype), like.shape)


def _cos_sin(half: Float[Array, "2 k"]) -> Float[Array, "2 k"]:
    c, s = components(half)
    return jnp.stack([c * c - s * s, 2 * c * s])


def _turned(cos_sin: Float[Array, "2 k"], r: Float[Array, "2 k"]) -> Float[Array, "2 k"]:
    (c, s), (x, y) = components(cos_sin), components(r)
    return jnp.stack([c * x - s * y, s * x + c * y])


def _normal_times(r: Float[Array, "2 k"]) -> Float[Array, "2 k"]:
    """n x r."""
    x, y = components(r)
    return jnp.stack([-y, x])


def _dot(L: Float[Array, "2 rows k"], r: Float[Array, "2 k"]) -> Float[Array, "rows k"]:
    return contracted(L, r[:, None], 0)
