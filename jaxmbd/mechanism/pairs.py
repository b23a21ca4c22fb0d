"""Lower pairs and joints built like them: rows of all kinds, evaluated at once.

In world axes frame a has the axes e1, e2, e3 and frame b has z1, z2, z3. d is the vector from the
origin of a to that of b, and (w, u) the relative quaternion. A pair constrains some of

    e_i . d   (x, y, z),    e1 . z3, e2 . z3   (tilt),    e1 . z2   (arms),    2 u_i   (turn).

Vectors y fixed to a body rotate by y' = omega x y. With the relative angular velocity omega in
frame a, u' = (w omega + omega x u) / 2. So each row changes at the rate

    L . (v_b - v_a) + A . (omega_b - omega_a)

where v_a and v_b are the velocities of the points of both bodies at the origin of frame b. L and A
follow without differentiation: L = e_i for an offset, A = z x e for a product of axes, and A is a
combination of the e for a turn. The Jacobian transforms them to the origins of the bodies, as
forces are transformed. Its products with velocities are the rates, whose derivatives give all
others.

Arrays have the three components of vectors first and one entry for each joint last: `(3, rows, k)`
for rows that are evaluated together.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._coordinates import algebra, apply_matrix
from .._fusion import contracted

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


class Pairs(NamedTuple):
    """Pairs at one q, with the components `names`.

    - `e`, `z`: axes of the frames, as columns.
    - `apart`: d. `arm_a`, `arm_b`: from the origins of the bodies to that of frame b.
    - `turn`: (w, u) with w >= 0, or zeros if not needed.
    """

    names: tuple[str, ...]
    e: Float[Array, "3 3 k"]
    z: Float[Array, "3 3 k"]
    apart: Float[Array, "3 k"]
    arm_a: Float[Array, "3 k"]
    arm_b: Float[Array, "3 k"]
    turn: Float[Array, "4 k"]

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
            size = jnp.sqrt(jnp.sum(turn * turn, axis=0))
            turn = jnp.where(turn[:1] < 0, -turn, turn) / size[None]
        return cls(names, e, z, arm_a - own_a, arm_a, arm_b, turn)

    @property
    def _shifts(self) -> list[int]:
        return [i for i, name in enumerate("xyz") if name in self.names]

    @property
    def _turns(self) -> list[int]:
        return [i for i, axis in enumerate("xyz") if f"turn_{axis}" in self.names]

    def _axes(self) -> tuple[Float[Array, "3 rows k"], Float[Array, "3 rows k"]]:
        """e and z of the products of axes."""
        pairs = [_AXES[name] for name in self.names if name in _AXES]
        return _columns(self.e, [i for i, _ in pairs]), _columns(self.z, [j for _, j in pairs])

    def values(self) -> Float[Array, "names k"]:
        """The components, shape `(names, k)`."""
        e, z = self._axes()
        found = [_dot(_columns(self.e, self._shifts), self.apart[:, None]), _dot(e, z)]
        if self._turns:
            found.append(2 * _columns(self.turn[None, 1:], self._turns)[0])
        return jnp.concatenate(found)

    def _levers(self) -> tuple[Float[Array, "3 shifts k"], Float[Array, "3 others k"]]:
        """L of the offsets, and A of all others."""
        e, z = self._axes()
        A = algebra.cross(z, e)
        if turns := self._turns:
            # w e_i + u_k e_j - u_j e_k, with (i, j, k) cyclic.
            after, before = ([(i + n) % 3 for i in turns] for n in (1, 2))
            w, u = self.turn[None, :1], self.turn[None, 1:]
            of_turns = (
                w * _columns(self.e, turns)
                + _columns(u, before) * _columns(self.e, after)
                - _columns(u, after) * _columns(self.e, before)
            )
            A = jnp.concatenate([A, of_turns], axis=1)
        return _columns(self.e, self._shifts), A

    def rates(self, v_a: Float[Array, "6 k"], v_b: Float[Array, "6 k"]) -> Float[Array, "names k"]:
        """J v."""
        L, A = self._levers()
        at_a = v_a[:3] + algebra.cross(v_a[3:], self.arm_a)
        of_points = v_b[:3] + algebra.cross(v_b[3:], self.arm_b) - at_a
        spin = v_b[3:] - v_a[3:]
        return jnp.concatenate([_dot(L, of_points[:, None]), _dot(A, spin[:, None])])

    def jacobian(self) -> list[Float[Array, "names 6 k"]]:
        """J for the velocities of a, and for those of b."""
        L, A = self._levers()
        still = jnp.zeros_like(A)
        found = []
        for sign, arm in ((-1, self.arm_a), (1, self.arm_b)):
            tilts = algebra.cross(arm[:, None], L)
            rows = [jnp.concatenate([L, tilts]), jnp.concatenate([still, A])]
            found.append(sign * jnp.swapaxes(jnp.concatenate(rows, axis=1), 0, 1))
        return found


def _columns(x: Float[Array, "m n k"], index: Sequence[int]) -> Float[Array, "m rows k"]:
    if list(index) == list(range(x.shape[1])):
        return x
    return jnp.concatenate([x[:, i : i + 1] for i in index] or [x[:, :0]], axis=1)


def _dot(a: Float[Array, "3 rows k"], b: Float[Array, "3 #rows k"]) -> Float[Array, "rows k"]:
    return contracted(a, b, 0)
