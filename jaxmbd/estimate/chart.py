"""Coordinates xi of the admissible states near a state, and the way back onto the constraints.

Near (q, v, z, theta), with internal states z and free numbers theta of the parameters,

    xi = (a, b, dz, dtheta)  ->  q (+) U a and v + U b, projected onto the constraints of theta +
                                 dtheta;  z + dz,  theta + dtheta.

U are admissible directions, J U = 0, with U^T M U = 1. The projection moves along M^-1 J^T. So it
changes nothing in a = U^T M (q1 (-) q) and b = U^T M (v1 - v), which is the way from a state to xi,
up to second order. Without constraints U is 1.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._compiler import each, product, stop_gradient
from .._equations import equations
from .._linalg import Automatic, ConstraintOperator, dense
from .._methods import Projection
from .._results import RESULTS
from .._search import nonzero, redundancy
from .._system import AbstractSystem, has_plain_coordinates
from .._types import Coordinates, Scalar, Velocity
from .gaussian import factor


class Point(NamedTuple):
    """A state with internal states z, or `None`, and the free numbers of the parameters."""

    q: Coordinates
    v: Velocity
    z: Float[Array, " nz"] | None
    theta: Float[Array, " p"]


class Basis(NamedTuple):
    """Admissible directions U with U^T M U = 1, and M U."""

    U: Float[Array, "nv n"]
    MU: Float[Array, "nv n"]


class Bases(NamedTuple):
    """Those of positions and of velocities; `None` for all directions.

    - `velocity` is a tuple of one basis, or of none if it is that of positions.
    - `shift`: the displacements that follow a change of the free numbers theta, `(nv, p)`.
    - `turn`: the changes of v that follow one of (a, theta), `(nv, na + p)`. Both are along
      M^-1 J^T; `None` without constraints.
    """

    position: Basis | None
    velocity: tuple[Basis | None, ...] = ()
    shift: Float[Array, "nv p"] | None = None
    turn: Float[Array, "nv ap"] | None = None

    @property
    def none(self) -> bool:
        """Whether all directions are admissible."""
        return self.position is None and self.of_velocity is None

    @property
    def of_velocity(self) -> Basis | None:
        """The basis of velocities."""
        return self.velocity[0] if self.velocity else self.position


class Chart(NamedTuple):
    """The coordinates xi at a point."""

    point: Point
    bases: Bases

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The numbers of a, b, dz and dtheta."""
        nv = self.point.v.shape[0]
        of = self.bases.position, self.bases.of_velocity
        p, v = (nv if basis is None else basis.U.shape[1] for basis in of)
        z = 0 if self.point.z is None else self.point.z.shape[0]
        return p, v, z, self.point.theta.shape[0]

    @property
    def size(self) -> int:
        """The number of all."""
        return sum(self.sizes)

    def parts(self, xi: Float[Array, " n"]) -> list[Array]:
        """a, b, dz and dtheta."""
        return list(jnp.split(xi, np.cumsum(self.sizes)[:-1]))

    def lifted(self, system: AbstractSystem, xi: Float[Array, " n"]) -> Point:
        """The point at xi, to first order on the constraints. `system`: any of these
        coordinates."""
        a, b, dz, dtheta = self.parts(xi)
        point, bases = self.point, self.bases
        dp, dv = _times(bases.position, a), _times(bases.of_velocity, b)
        if bases.shift is not None and bases.turn is not None:
            dp = dp + (bases.shift @ dtheta if dtheta.size else 0.0)
            dv = dv + bases.turn @ jnp.concatenate([a, dtheta])
        z = None if point.z is None else point.z + dz
        q = system.retract(point.q, dp)
        return Point(q, point.v + dv, z, point.theta + dtheta)

    def seen(self, system: AbstractSystem, other: Point) -> Float[Array, " n"]:
        """xi of a point nearby."""
        point, bases = self.point, self.bases
        dp = system.difference(point.q, other.q)
        of_z = [] if point.z is None or other.z is None else [other.z - point.z]
        a = _along(bases.position, dp)
        b = _along(bases.of_velocity, other.v - point.v)
        return jnp.concatenate([a, b, *of_z, other.theta - point.theta])

    def of_motion(self, pp: Array, pv: Array, vv: Array) -> Float[Array, "ab ab"]:
        """The covariance of (a, b) for one of displacements (dp, dv) with the blocks pp, pv and vv:
        matrices, or vectors for their diagonals."""
        left, right = self.bases.position, self.bases.of_velocity
        corner = _between(left, pv, right)
        rows = [_between(left, pp, left), corner], [corner.T, _between(right, vv, right)]
        return jnp.concatenate([jnp.concatenate(row, axis=1) for row in rows])

    def change(
        self, system: AbstractSystem, xi: Float[Array, " n"], other: "Chart"
    ) -> Float[Array, "n n"]:
        """The derivative of what `other` sees of the point at xi. What the projection contributes
        is normal to the constraints there, and is not seen."""
        p, v, z, theta = self.sizes
        one = jnp.eye(z + theta, dtype=xi.dtype)
        a, *_ = self.parts(xi)

        def moved(a):
            q = system.retract(self.point.q, _times(self.bases.position, a))
            return system.difference(other.point.q, q)

        if has_plain_coordinates(system):
            turned = _columns(self.bases.position, p, xi)
        else:
            turned = jax.jacfwd(moved)(a)
        of_p = _along(other.bases.position, turned)
        of_v = _along(other.bases.of_velocity, _columns(self.bases.of_velocity, v, xi))
        return jax.scipy.linalg.block_diag(of_p, of_v, one)


def on_positions(
    system: AbstractSystem, t: Scalar, point: Point, iterations: int
) -> tuple[Point, RESULTS]:
    """The point with its position on the constraints, and whether it is there. After the first of
    the iterations of Newton's method, which has the derivatives of all, others run where they are
    needed."""
    of, tolerance = equations(system), 1e-10 if point.q.dtype == jnp.float64 else 1e-5
    if of.positions(t, point.q).shape[0] == 0 or iterations == 0:
        return point, RESULTS.successful
    one = Projection(iterations=1, velocity=False)

    def nearer(q):
        return one.project_position(of, t, q, point.v)[0]

    def onward(q, first):
        far = jnp.max(jnp.abs(of.positions(t, q))) > tolerance / 100
        return jax.lax.cond(first | far, nearer, lambda q: q, q), None

    if iterations == 1:
        q = nearer(point.q)
    else:
        q, _ = jax.lax.scan(onward, point.q, jnp.arange(iterations) == 0)
    met = jnp.max(jnp.abs(of.positions(t, q))) <= tolerance
    return point._replace(q=q), RESULTS.where(met, RESULTS.successful, RESULTS.projection_failed)


def on_velocities(system: AbstractSystem, t: Scalar, point: Point) -> Point:
    """The point with its velocity on the constraints."""
    still = Projection(iterations=0)
    return point._replace(v=still.project_velocity(system, t, point.q, point.v))


def settled(
    system_of: Callable[[Float[Array, " p"]], AbstractSystem],
    t: Scalar,
    point: Point,
    before: Bases,
    *,
    velocity: bool = True,
) -> tuple[Point, Bases, RESULTS]:
    """The point with its `velocity` on the constraints, the directions that are admissible there,
    turned as little as possible, and whether there are as many as before nearby. `system_of`: the
    system with free numbers theta."""
    if before.none:
        return point, before, RESULTS.successful
    of = equations(system_of(point.theta))
    rows = of.rows(t, point.q, point.v)
    M, holonomic, count = of.mass(point.q), rows.phi.shape[0], rows.J.shape[0]

    def operator_of(J):
        tilt = of.tilt(point.q, point.v, J, rows.phi)
        return ConstraintOperator(Automatic(), M, J, tilt=tilt)

    every = operator_of(rows.J)
    some = every if holonomic == count else operator_of(_first(rows.J, holonomic))
    if velocity:
        point = point._replace(v=point.v + every.correct(-rows.velocity, point.v)[0])

    def carried(operator, basis, rows):
        still = jnp.zeros(rows, point.v.dtype)
        U = each(lambda u: u + operator.steer(still, u)[0], basis.U.T).T
        return orthonormal(of.system, point.q, U)

    position, of_velocity, goods = before.position, before.velocity, [jnp.array(True)]
    if of_velocity:
        basis, good = carried(every, of_velocity[0], count)
        of_velocity, goods = (basis,), [good]
    if position is not None:
        position, good = carried(some, position, holonomic)
        goods.append(good)
    independent = jnp.all(jnp.stack(goods))
    result = RESULTS.where(independent, RESULTS.successful, RESULTS.freedoms_changed)
    shift, turn = _following(system_of, t, point, position, some, every, holonomic)
    return point, Bases(position, of_velocity, shift, turn), result


def _following(
    system_of: Callable,
    t: Scalar,
    point: Point,
    position: Basis | None,
    some: ConstraintOperator,
    every: ConstraintOperator,
    holonomic: int,
) -> tuple[Float[Array, "nv p"], Float[Array, "nv ap"]]:
    """`shift` and `turn` of `Bases`. `some` and `every`: the operators of the holonomic rows, and
    of all. On the constraints these are the derivatives of the projection, for which no solve needs
    to be differentiated."""
    q, v, theta = point.q, point.v, point.theta
    p, size = theta.shape[0], v.shape[0] if position is None else position.U.shape[1]

    def onto(operator, r):
        return each(lambda r: operator.correct(-r, v)[0], r.T).T

    def positions(dtheta):
        return equations(system_of(theta + dtheta)).positions(t, q)

    shift = jnp.zeros((v.shape[0], p), v.dtype)
    if holonomic and p:
        shift = onto(some, jax.jacfwd(positions)(jnp.zeros_like(theta)))
    across = jnp.concatenate([_columns(position, size, q), shift], axis=1)

    def velocities(x):
        system = system_of(theta + x[size:])
        return equations(system).velocities(t, system.retract(q, across @ x), v)

    turn = onto(every, jax.jacfwd(velocities)(jnp.zeros(size + p, v.dtype)))
    return shift, turn


def orthonormal(
    system: AbstractSystem, q: Coordinates, U: Float[Array, "nv n"]
) -> tuple[Basis, Bool[Array, ""]]:
    """The span of U with U^T M U = 1, and whether its columns are independent."""
    of = equations(system)
    MU = each(lambda u: of.inertia(q, u), U.T).T
    found = factor(product(U.T, MU))
    return Basis(product(U, found.W.T), product(MU, found.W.T)), found.regular & found.valid


def first_bases(
    system: AbstractSystem, t: Scalar, q: Coordinates, v: Velocity, size: tuple[int, int] | None
) -> Bases:
    """Directions for `carried_bases`, constant in derivatives. `size`: the numbers of freedoms of
    positions and of velocities; by default they are counted, for concrete numbers."""
    rows = equations(system).rows(t, q, v)
    holonomic, count = rows.phi.shape[0], rows.J.shape[0]
    if count == 0:
        return Bases(None)
    J = stop_gradient(dense(rows.J))

    def null(J, size):
        _, s, Vh = jnp.linalg.svd(J, full_matrices=True)
        if size is None:
            size = Vh.shape[0] - int(np.sum(nonzero(np.asarray(s), redundancy(s.dtype))))
        U = Vh[Vh.shape[0] - size :].T
        return Basis(U, U)

    of_position, of_velocity = size or (None, None)
    position = null(J[:holonomic], of_position) if holonomic else None
    if holonomic == count:
        return Bases(position)
    return Bases(position, (null(J, of_velocity),))


def _first(J, rows: int):
    return J[:rows] if eqx.is_array(J) else J.first(rows)


def _times(basis: Basis | None, a: Array) -> Array:
    return a if basis is None else basis.U @ a


def _along(basis: Basis | None, dx: Array) -> Array:
    if basis is None:
        return dx
    return basis.MU.T @ dx if dx.ndim == 1 else product(basis.MU.T, dx)


def _between(left: Basis | None, C: Array, right: Basis | None) -> Array:
    of_right = jnp.eye(C.shape[-1], dtype=C.dtype) if right is None else right.MU
    return _along(left, C[:, None] * of_right if C.ndim == 1 else product(C, of_right))


def _columns(basis: Basis | None, size: int, like: Array) -> Array:
    return jnp.eye(size, dtype=like.dtype) if basis is None else basis.U
