"""Rows of lower pairs of all kinds at once.

In world axes frame a has the axes e1, e2, e3 and frame b has z1, z2, z3. d is the vector from the
origin of a to the origin of b, and (w, u) the relative quaternion. A pair constrains some of

    e_i . d   (x, y, z),    e1 . z3, e2 . z3   (tilt),    e1 . z2   (arms),    2 u_i   (turn).

Vectors y fixed to a body rotate by y' = omega x y. With the relative angular velocity omega in
frame a, u' = (w omega + omega x u) / 2. So each row changes at the rate

    L . (v_b - v_a) + A . (omega_b - omega_a)

where v_a and v_b are the velocities of the points of both bodies at the origin of frame b. L and A
follow without differentiation: L = e_i for an offset, A = z x e for a product of axes, and A is a
combination of the e for a turn. The Jacobian transforms them to the origins of the bodies, as
forces are transformed. The drift, the derivative of the rates at constant velocities, is in closed
form as well.

In a plane e1 and e2 are in the plane, and e3 is its normal. Pairs there have rows x, y and turn_z
only, see `in_plane.py`, and the same formulas with vectors of two components.

Arrays have the three components of vectors first and one entry for each joint last: `(3, rows, k)`
for rows that are evaluated together.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler import contract
from .._coordinates import algebra, apply_matrix, components
from .plane import turned

# In the order of evaluation.
NAMES = ("x", "y", "z", "tilt_x", "tilt_y", "arms", "turn_x", "turn_y", "turn_z")

_AXES = {"tilt_x": (0, 2), "tilt_y": (1, 2), "arms": (0, 1)}


class Ends(NamedTuple):
    """All pairs at one end: positions of the bodies, their axes (as columns) and quaternions, and
    position, axes and quaternion of the frames on them."""

    position: Float[Array, "3 k"]
    axes: Float[Array, "3 3 k"]
    orientation: Float[Array, "4 k"]
    frame_position: Float[Array, "3 k"]
    frame_axes: Float[Array, "3 3 k"]
    frame_orientation: Float[Array, "4 k"]


class FlatEnds(NamedTuple):
    """The same in a plane: positions of the bodies, cosine and sine of half their angles, and
    positions of the frames on them."""

    position: Float[Array, "2 k"]
    half: Float[Array, "2 k"]
    frame_position: Float[Array, "2 k"]

    @property
    def angle(self) -> Float[Array, "2 k"]:
        """Cosine and sine of the angles."""
        c, s = components(self.half)
        return jnp.stack([c * c - s * s, 2 * c * s])


class Pairs(NamedTuple):
    """Pairs at one q, with the components `names`, in space (d = 3) or in a plane (d = 2).

    - `e`, `z`: axes of the frames, as columns; no `z` in a plane.
    - `apart`: the vector d. `arm_a`, `arm_b`: from the origins of the bodies to frame b.
    - `turn`: (w, u) with w >= 0, if needed; in a plane, u along its normal.
    """

    names: tuple[str, ...]
    e: Float[Array, "d d k"]
    z: Float[Array, "d axes k"]
    apart: Float[Array, "d k"]
    arm_a: Float[Array, "d k"]
    arm_b: Float[Array, "d k"]
    turn: Float[Array, "n k"]

    @classmethod
    def at(cls, names: tuple[str, ...], a: Ends, b: Ends) -> "Pairs":
        """Build the pairs from both ends, with `names` in the order of `NAMES`."""
        e, z = (algebra.matrix_product(end.axes, end.frame_axes) for end in (a, b))
        own_a, arm_b = (apply_matrix(x.axes, x.frame_position) for x in (a, b))
        arm_a = b.position + arm_b - a.position
        turn = jnp.zeros_like(a.orientation)
        if any(name.startswith("turn") for name in names):
            p, q = (algebra.quaternion_product(x.orientation, x.frame_orientation) for x in (a, b))
            turn = algebra.quaternion_product(algebra.quaternion_conjugate(p), q)
            turn = turn / jnp.sqrt(jnp.sum(turn * turn, axis=0))[None]
        return cls(names, e, z, arm_a - own_a, arm_a, arm_b, _shorter(turn))

    @classmethod
    def in_plane(
        cls,
        names: tuple[str, ...],
        a: FlatEnds,
        b: FlatEnds,
        axis: Float[Array, "2 k"] | None,
        between: Float[Array, "2 k"] | None,
    ) -> "Pairs":
        """The same in a plane. `axis`: the first one of frame a in the axes of body a, whose axes
        are those of the frame for `None`. `between`: cosine and sine of half the angle from frame a
        to frame b when both bodies are at angle 0, if needed."""
        angle = a.angle
        own_a, arm_b = turned(angle, a.frame_position), turned(b.angle, b.frame_position)
        arm_a = b.position + arm_b - a.position
        c, s = components(angle if axis is None else turned(angle, axis))
        e = jnp.stack([jnp.stack([c, -s]), jnp.stack([s, c])])
        turn = a.half
        if between is not None:
            back = a.half * jnp.asarray([[1], [-1]], turn.dtype)
            turn = turned(between, turned(back, b.half))
        return cls(names, e, e[:, :0], arm_a - own_a, arm_a, arm_b, _shorter(turn))

    @property
    def _planar(self) -> bool:
        return self.e.shape[0] == 2

    @property
    def _shifts(self) -> list[int]:
        return [i for i, name in enumerate("xyz") if name in self.names]

    @property
    def _turns(self) -> list[int]:
        axes = "z" if self._planar else "xyz"
        return [i for i, axis in enumerate(axes) if f"turn_{axis}" in self.names]

    def _axes(self) -> tuple[Float[Array, "d rows k"], Float[Array, "d rows k"]]:
        """e and z of the products of axes."""
        pairs = [_AXES[name] for name in self.names if name in _AXES]
        return _columns(self.e, [i for i, _ in pairs]), _columns(self.z, [j for _, j in pairs])

    def _cross(self, w: Array, r: Float[Array, "d k"]) -> Float[Array, "d k"]:
        """w x r."""
        if not self._planar:
            return algebra.cross(w, r)
        x, y = components(r)
        return w * jnp.stack([-y, x])

    def _twice_u(self) -> Float[Array, "turns k"]:
        return 2 * _columns(self.turn[None, 1:], self._turns)[0]

    def values(self) -> Float[Array, "names k"]:
        """The components, shape `(names, k)`."""
        offsets = _dot(_columns(self.e, self._shifts), self.apart[:, None])
        return jnp.concatenate([offsets, _dot(*self._axes()), self._twice_u()])

    def _levers(self) -> tuple[Float[Array, "d shifts k"], Float[Array, "_ others k"]]:
        """L of the offsets, and A of all others."""
        L, turns, w = _columns(self.e, self._shifts), self._turns, self.turn[None, :1]
        if self._planar:
            return L, w[:, : len(turns)]
        e, z = self._axes()
        A = algebra.cross(z, e)
        if turns:
            # w e_i + u_k e_j - u_j e_k, with (i, j, k) cyclic.
            after, before = ([(i + n) % 3 for i in turns] for n in (1, 2))
            u = self.turn[None, 1:]
            of_turns = (
                w * _columns(self.e, turns)
                + _columns(u, before) * _columns(self.e, after)
                - _columns(u, after) * _columns(self.e, before)
            )
            A = jnp.concatenate([A, of_turns], axis=1)
        return L, A

    def _point_b(self, v_a: Float[Array, "n k"], v_b: Float[Array, "n k"]) -> Float[Array, "d k"]:
        """The velocity of the origin of frame b relative to that of body a."""
        d = self.e.shape[0]
        return v_b[:d] + self._cross(v_b[d:], self.arm_b) - v_a[:d]

    def rates(self, v_a: Float[Array, "n k"], v_b: Float[Array, "n k"]) -> Float[Array, "names k"]:
        """J v."""
        (L, A), d = self._levers(), self.e.shape[0]
        of_points = self._point_b(v_a, v_b) - self._cross(v_a[d:], self.arm_a)
        spin = v_b[d:] - v_a[d:]
        return jnp.concatenate([_dot(L, of_points[:, None]), _dot(A, spin[:, None])])

    def drift(self, v_a: Float[Array, "n k"], v_b: Float[Array, "n k"]) -> Float[Array, "names k"]:
        """J' v at constant velocities v."""
        (L, A), d, cross = self._levers(), self.e.shape[0], self._cross
        omega_a, omega_b = v_a[d:], v_b[d:]
        # L' = omega_a x L, and the arm of a changes at the rate of `_point_b`.
        bent = cross(omega_b, cross(omega_b, self.arm_b)) + cross(
            omega_a, cross(omega_a, self.arm_a) - 2 * self._point_b(v_a, v_b)
        )
        spin = (omega_b - omega_a)[:, None]
        # A rotates with a, and by the spin s as the components do:
        # (e . z)'' = (s . e) (s . z) - s^2 e . z, and u'' = - s^2 u / 4, both at constant s.
        square = _dot(spin, spin)
        turns = -square / 4 * self._twice_u()
        if self._planar:
            return jnp.concatenate([_dot(L, bent[:, None]), turns])
        e, z = self._axes()
        tilts = _dot(e, spin) * _dot(z, spin) - square * _dot(e, z)
        others = jnp.concatenate([tilts, turns]) - _dot(A, cross(omega_a, omega_b)[:, None])
        return jnp.concatenate([_dot(L, bent[:, None]), others])

    def jacobian(self) -> list[Float[Array, "names n k"]]:
        """J for the velocities of a and of b."""
        L, A = self._levers()
        still = jnp.zeros((len(L), *A.shape[1:]), A.dtype)
        found = []
        for sign, arm in ((-1, self.arm_a), (1, self.arm_b)):
            arm = arm[:, None]
            if self._planar:
                tilts = (arm[0] * L[1] - arm[1] * L[0])[None]
            else:
                tilts = algebra.cross(arm, L)
            rows = [jnp.concatenate([L, tilts]), jnp.concatenate([still, A])]
            found.append(sign * jnp.swapaxes(jnp.concatenate(rows, axis=1), 0, 1))
        return found


def _shorter(turn: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """The same rotation, by at most half a turn."""
    return jnp.where(turn[:1] < 0, -turn, turn)


def _columns(x: Float[Array, "m n k"], index: Sequence[int]) -> Float[Array, "m rows k"]:
    if list(index) == list(range(x.shape[1])):
        return x
    return jnp.concatenate([x[:, i : i + 1] for i in index] or [x[:, :0]], axis=1)


def _dot(a: Float[Array, "n rows k"], b: Float[Array, "n #rows k"]) -> Float[Array, "rows k"]:
    return contract("xrk,xrk->rk", a, b)
