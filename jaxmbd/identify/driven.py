"""A motion whose freedoms are prescribed, and the forces that it takes."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._compiler import inverse, without_tangents
from .._equations import equations
from .._linalg import dense
from .._mechanism import Driven
from .._system import AbstractSystem
from .._types import Coordinates, Rows, Scalar, Velocity

# Newton's method ends at corrections below this, or after so many.
_TOLERANCE, _ITERATIONS = 1e-9, 20
# The first pose is approached in so many steps.
_APPROACH = 20


class Drive(NamedTuple):
    """The values of the drives with their rates and accelerations, `(d,)` each."""

    position: Float[Array, "*n d"]
    rate: Float[Array, "*n d"]
    acceleration: Float[Array, "*n d"]


class Loads(NamedTuple):
    """The constrained motion at a moment: v' = `acceleration`, the multipliers of the constraints,
    and the forces `efforts` of the drives along x,

        M v' = f + J^T lam + x_q^T efforts.
    """

    acceleration: Velocity
    multipliers: Rows
    efforts: Float[Array, " d"]


class Kinematic(NamedTuple):
    """q, v and v' of a driven system, and K^+ with the rows K of constraints and drives."""

    q: Coordinates
    v: Velocity
    a: Velocity
    inverse: Float[Array, "nv rows"]


def pseudoinverse(K: Float[Array, "rows nv"], order: int = 1) -> Float[Array, "nv rows"]:
    """K^+ = (K^T K)^-1 K^T with derivatives up to this order, 1 or 2; not finite if K has no full
    rank, as at a dead point."""
    A = K.T @ K
    X, _ = inverse(jax.lax.stop_gradient(A))
    # Each step of Newton's method for X A = 1 makes derivatives of one more order exact.
    for _ in range(order):
        X = 2 * X - X @ A @ X
    return X @ K.T


def _of_drives(whole: Driven, x: Float[Array, " d"]) -> Rows:
    """The numbers of the drives in the places of their rows, and 0 elsewhere."""
    rows = len(whole.own) + len(whole.drives)
    return (np.arange(rows)[:, None] == whole.drives).astype(x.dtype) @ x


def off(whole: Driven, t: Scalar, q: Coordinates, x: Float[Array, " d"]) -> Rows:
    """Phi at q, and x(q) - x, of angles the nearest one."""
    phi = equations(whole.system).positions(t, q) - _of_drives(whole, x)
    angles = _of_drives(whole, jnp.asarray(whole.angles, q.dtype))
    turns = jnp.round(jax.lax.stop_gradient(phi) / (2 * np.pi)) * angles
    return phi - 2 * np.pi * turns


def _corrected(whole: Driven, t, q, still, x, order=0) -> tuple[Coordinates, Float[Array, ""]]:
    """q after one step of Newton's method, and the size of the step."""
    K = dense(equations(whole.system).rows(t, q, still).J)
    d = -pseudoinverse(K, order) @ off(whole, t, q, x)
    return whole.system.retract(q, d), jnp.max(jnp.abs(d))


def poses(
    whole: Driven,
    start: tuple[Coordinates, Velocity],
    t: Float[Array, " n"],
    x: Float[Array, "n d"],
) -> tuple[Float[Array, "n nq"], Bool[Array, " n"]]:
    """The poses in which the drives have these values, each found from the one before, and whether
    they are. They are constants under differentiation, see `kinematic`."""
    still = jnp.zeros_like(start[1])

    def sample(q, given):
        t, x = given

        def going(carry):
            _, size, k = carry
            return (size > _TOLERANCE) & (k < _ITERATIONS)

        def step(carry):
            q, _, k = carry
            return *_corrected(whole, t, q, still, x), k + 1

        begin = (q, jnp.asarray(jnp.inf, q.dtype), jnp.array(0))
        here, size, _ = jax.lax.while_loop(going, step, begin)
        good = size <= _TOLERANCE
        q = jnp.where(good, here, q)
        return q, (q, good)

    def all_of(q, t, x):
        first = equations(whole.system).positions(t[0], q)[whole.drives]
        share = jnp.arange(1, _APPROACH, dtype=q.dtype)[:, None] / _APPROACH
        approach = first[None] + share * (x[0] - first)[None]
        times = jnp.concatenate([jnp.full(len(approach), t[0]), t])
        _, found = jax.lax.scan(sample, q, (times, jnp.concatenate([approach, x])))
        return jax.tree.map(lambda y: y[len(approach) :], found)

    return without_tangents(all_of, start[0], t, x)


def kinematic(
    whole: Driven, order: int, t: Scalar, q: Coordinates, still: Velocity, drive: Drive
) -> Kinematic:
    """The motion at a moment, near the pose q, with derivatives up to this order, 1 or 2. `still`:
    zeros of the shape of v."""
    # From the pose, one step of Newton's method makes first derivatives exact, and two second ones.
    for done in range(order):
        q, _ = _corrected(whole, t, q, still, drive.position, done)
    rows = equations(whole.system).rows(t, q, still)
    X = pseudoinverse(dense(rows.J), order)
    v = X @ (_of_drives(whole, drive.rate) - rows.velocity)
    gamma = equations(whole.system).rows(t, q, v).gamma
    a = X @ (_of_drives(whole, drive.acceleration) + gamma)
    return Kinematic(q, v, a, X)


def loads(system: AbstractSystem, whole: Driven, u: Any, t: Scalar, here: Kinematic) -> Loads:
    """The forces that the motion takes, beside those of the inputs u."""
    control = None if u is None else lambda *_: u
    force = equations(system).force(control, t, here.q, here.v)
    needed = equations(system).inertia(here.q, here.a) - force
    forces = here.inverse.T @ needed
    return Loads(here.a, forces[whole.own], forces[whole.drives])
