"""A motion between its points, and feedback along it."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int, PyTree

from .._linalg import AbstractConstraintSolver
from .._printed import counted, judged, printed, span
from .._results import RESULTS
from .._system import AbstractSystem
from .._tangent_space import difference
from .._types import Control, Coordinates, RealScalarLike, Velocity
from ..trajopt import AbstractControl
from ..trajopt.controls import within
from .linearise import acceleration

# Times this close to a point, as a share of an interval, count as that point.
_AT_POINT = 1e-6


class Nominal(eqx.Module):
    """A motion with its inputs. Between the points, velocities and displacements are cubics with
    the derivatives that the motion has at the points, and inputs are parabolas. Before the first
    and after the last point everything is constant.

    - `t`, `q`, `v`: the points.
    - `steps`, `speeds`, `inputs`: the coefficients of the polynomials of dp, dv and u, of the share
      of the interval that has passed. For inputs, all powers from 0; for others, from 1.
    - `example`: inputs of the right structure.
    """

    system: AbstractSystem
    t: Float[Array, " points"]
    q: Float[Array, "points nq"]
    v: Float[Array, "points nv"]
    steps: Float[Array, "n 3 nv"]
    speeds: Float[Array, "n 3 nv"]
    inputs: Float[Array, "n 3 nu"]
    example: PyTree

    def place(self, t: RealScalarLike) -> tuple[Int[Array, ""], Float[Array, ""]]:
        """The interval that contains t, and the share of it that has passed."""
        h = self.t[1:] - self.t[:-1]
        k = jnp.sum(t >= self.t[1:-1] - _AT_POINT * h[:-1])
        return k, self.share(k, t)

    def share(self, k: Int[Array, ""], t: RealScalarLike) -> Float[Array, ""]:
        """The share of interval k that has passed at t."""
        return jnp.clip((t - self.t[k]) / (self.t[k + 1] - self.t[k]), 0.0, 1.0)

    def state(self, k: Int[Array, ""], s: RealScalarLike) -> tuple[Coordinates, Velocity]:
        """q and v in interval k, after the share s of it."""
        s = jnp.asarray(s, self.q.dtype)
        powers = jnp.stack([s, s**2, s**3])
        q = self.system.retract(self.q[k], powers @ self.steps[k])
        return q, self.v[k] + powers @ self.speeds[k]

    def u(self, k: Int[Array, ""], s: RealScalarLike) -> Float[Array, " nu"]:
        """The numbers of the inputs in interval k."""
        s = jnp.asarray(s, self.q.dtype)
        return jnp.stack([jnp.ones_like(s), s, s**2]) @ self.inputs[k]

    def structured(self, u: Float[Array, " nu"]) -> PyTree:
        """Inputs with these numbers."""
        return None if self.example is None else ravel_pytree(self.example)[1](u)


def nominal(
    system: AbstractSystem,
    solver: AbstractConstraintSolver,
    control: Control | None,
    t: Float[Array, " points"],
    q: Float[Array, "points nq"],
    v: Float[Array, "points nv"],
) -> Nominal:
    """The motion through these points under a control."""
    zero = jnp.zeros((), q.dtype)
    example = None if control is None else control(t[0], q[0], v[0])

    def during(begin):
        """The control in the interval that begins there, and its numbers."""
        here = None if control is None else within(control, *begin)

        def numbers(t, q, v):
            return jnp.zeros(0, q.dtype) if here is None else ravel_pytree(here(t, q, v))[0]

        return here, numbers

    def cubic(begin, change, end):
        """The coefficients of x(s), x(0) = 0, with these x'(0), x(1), x'(1)."""
        return jnp.stack([begin, 3 * change - 2 * begin - end, begin + end - 2 * change])

    def interval(begin, end):
        (t0, q0, v0), (t1, q1, v1) = begin, end
        h = t1 - t0
        here, numbers = during(begin)
        a0, a1 = (acceleration(system, solver, here, *x)[0] for x in (begin, end))

        def ahead(s):
            return system.difference(q0, system.retract(q1, s * v1))

        change, leaving = jax.jvp(ahead, (zero,), (h,))
        steps = cubic(h * v0, change, leaving)
        speeds = cubic(h * a0, v1 - v0, h * a1)
        half = jnp.asarray([0.5, 0.25, 0.125], q.dtype)
        middle = t0 + h / 2, system.retract(q0, half @ steps), v0 + half @ speeds
        u0, u, u1 = (numbers(*x) for x in (begin, middle, end))
        return steps, speeds, jnp.stack([u0, -3 * u0 + 4 * u - u1, 2 * u0 - 4 * u + 2 * u1])

    points = (t, q, v)
    begins = jax.tree.map(lambda x: x[:-1], points)
    ends = jax.tree.map(lambda x: x[1:], points)
    return Nominal(system, t, q, v, *jax.vmap(interval)(begins, ends), example)


@printed
class _Along(AbstractControl):
    """Gains along a motion."""

    constants: ClassVar[tuple[str, ...]] = ("value", "nominal", "result")

    gains: Float[Array, "*batch times nu nx"]
    value: Float[Array, "*batch points nx nx"]
    nominal: Nominal
    result: RESULTS

    def __str__(self) -> str:
        times, nu = self.gains.shape[-3:-1]
        held = "held from" if times < self.value.shape[-3] else "at"
        found = judged(self.result, "feedback found", "no feedback found")
        what = f"gains of {counted(nu, 'input')} {held} {counted(times, 'point')}"
        return f"{found}\n{what}, {span(self.gains)}"

    def correction(self, k, s, K, q, v) -> Float[Array, " nu"]:
        """K dx, for the deviation from the motion in interval k after the share s of it."""
        return K @ difference(self.nominal.system, self.nominal.state(k, s), (q, v))


class TrackingFeedback(_Along):
    r"""The control $u = \bar u(t) - K(t) \, dx$ with the deviation
    $dx = (q \ominus \bar q(t),\; v - \bar v(t))$ from a motion, for `simulate`, `Stepper` and
    `trajopt`. Deviations across the constraints have no effect. Gains are interpolated between the
    points of the motion. After its end, the state and the inputs there are the aim.

    **Fields:**

    - `gains`: K, `(n + 1, nu, 2 nv)`.
    - `value`: P, `(n + 1, 2 nv, 2 nv)`: from each point on, a small deviation dx costs dx^T P dx.
    - `nominal`: the motion, with its inputs.
    - `result`: `RESULTS.successful`, or why the gains are not to be used.
    """

    def __call__(self, t, q, v):
        return self.in_interval(self.nominal.place(t)[0], t, q, v)

    def in_interval(self, k, t: RealScalarLike, q, v):
        """The control at a time that belongs to interval k, its ends included."""
        s = self.nominal.share(k, t)
        K = (1 - s) * self.gains[k] + s * self.gains[k + 1]
        return self.nominal.structured(self.nominal.u(k, s) - self.correction(k, s, K, q, v))

    def within(self, t, q, v):
        del q, v
        # At the end of the interval, inputs that jump have not jumped yet.
        return Partial(TrackingFeedback.in_interval, self, self.nominal.place(t)[0])


class SampledFeedback(_Along):
    r"""The control $u = \bar u(t) - K_k \, dx(t_k)$ of a digital controller: the deviation from a
    motion is measured at the beginning of each interval, and its correction is held through the
    interval. `mbd.trajopt.perform` has such intervals, those of its `Problem`. `simulate` has none,
    so there the deviation is measured at each time.

    **Fields:** as in `TrackingFeedback`, but for `gains`: K, `(n, nu, 2 nv)`.
    """

    def __call__(self, t, q, v):
        return self.within(t, q, v)(t, q, v)

    def within(self, t, q, v):
        k, s = self.nominal.place(t)
        return Partial(_corrected, self.nominal, k, self.correction(k, s, self.gains[k], q, v))


def _corrected(nominal: Nominal, k: Array, correction: Array, t, q, v):
    """The inputs of a motion in interval k, minus a constant correction."""
    del q, v
    return nominal.structured(nominal.u(k, nominal.share(k, t)) - correction)
