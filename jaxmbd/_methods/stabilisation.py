"""How velocity-level methods remove violations of the position."""

import abc
from typing import Annotated

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._checks import one_each
from .._compiler import any_of_batch, held, loops_cost_nothing
from .._extensible import Extensible
from .._inputs import checked, positive
from .._linalg import ConstraintOperator
from .._types import RealScalarLike, Rows
from .point import Point
from .split import RowImpulse


class AbstractStabilisation(Extensible):
    """How violations of the position and of the velocity are removed together."""

    @abc.abstractmethod
    def impulse(
        self,
        operator: ConstraintOperator,
        point: Point,
        phi: Float[Array, " nh"],
        drift: Rows,
        h: RealScalarLike,
    ) -> RowImpulse:
        """The impulses of the rows in a step h, with `point`, `phi` and `drift` as in
        `AbstractSplitEnforcement.impulse`. `operator`: M and J of the point, factorised."""


class AbstractFeedback(AbstractStabilisation):
    """The velocities of the rows remove the violation, J v(n+1) + Phi_t = -feedback(Phi)."""

    @abc.abstractmethod
    def feedback(self, phi: Float[Array, " nh"], h: RealScalarLike) -> Float[Array, " nh"]:
        """The feedback velocity of the rows [unit of Phi / s]."""

    def impulse(self, operator, point, phi, drift, h):
        feedback = point.rows.position(self.feedback(phi, h))
        return RowImpulse(*operator.steer(-(drift + feedback), point.v))


class PassiveDeadBeat(AbstractStabilisation):
    """A displacement of least kinetic energy removes the whole violation, and becomes a velocity
    only as far as it gives no energy,

        c = -M^-1 J^T G^+ (J v* + Phi_t),    d = -M^-1 J^T G^+ Phi,
        v(n+1) = v* + c + s d/h,    q(n+1) = q(n) (+) N [h (v* + c) + d],
        s = min(1, 2 e / (e + e_d)),    e = c^T M c,    e_d = d^T M d / h^2.

    c takes the energy e/2 from the motion, and s d/h gives s^2 e_d / 2. This is never more than
    e/2, since 4 e e_d <= (e + e_d)^2. So without forces and moving rows, the energy never grows.
    On a smooth path v* leaves the constraints as steeply as the step before came back to them:
    e = e_d up to the order of the step, s = 1, and `DeadBeat` takes the same step. With s = 0 it
    would lose the energy e/2 in each step.
    """

    def impulse(self, operator, point, phi, drift, h):
        v = point.v
        if phi.shape[0] == 0:
            return RowImpulse(*operator.steer(-drift, v))
        phi = point.rows.position(phi)
        number, momentum = jnp.finfo(v.dtype), operator.equations.inertia(v)
        # Of an energy below rounding no share is decided, which derivatives would magnify. Then all
        # is displacement, as beside it: where Phi = 0 and nothing is taken, any Phi has s = 0.
        floor = jax.lax.stop_gradient(number.eps * jnp.sum(v * momentum) + number.tiny)

        def difference(change, impulses):
            """e - e_d = (c - d/h)^T M (c + d/h), from c + d/h and its impulses."""
            return jnp.sum((phi / h - drift) * impulses) - jnp.sum(change * momentum)

        def solved(needed, right):
            nothing = jnp.zeros_like(v), jnp.zeros_like(phi)
            found = jax.lax.cond(
                any_of_batch(needed), lambda: operator.steer(*right), lambda: nothing
            )
            return difference(*found) < 2 * floor, found

        # d is needed on its own only if e < e_d, which forces make rare.
        rights = (-(drift + phi / h), v), (-phi, jnp.zeros_like(v))
        if loops_cost_nothing():
            rights = tuple(map(jnp.stack, zip(*rights, strict=True)))
            _, (changes, impulses) = jax.lax.scan(solved, jnp.array(True), rights)
            (change, kick), (d, push) = zip(changes, impulses, strict=True)
        else:
            (change, kick), (d, push) = operator.steer_each(*rights)
        given = -jnp.sum(phi * push) / h**2
        taken = difference(change, kick) + given
        s = jnp.minimum(1.0, 2 * taken / (taken + given + 2 * floor))
        less = (1 - s) / h
        return RowImpulse(change - less * d, kick - less * push, (1 - s) * d)


class NoStabilisation(AbstractFeedback):
    """No feedback: only the velocity constraint holds, and Phi drifts by O(h^2) per step."""

    def feedback(self, phi, h):
        del h
        return jnp.zeros_like(phi)


class DeadBeat(AbstractFeedback):
    """The feedback Phi/h removes the whole violation within one step. Velocities contain the noise
    Phi/h, which may add energy where bodies turn far in a step."""

    def feedback(self, phi, h):
        return phi / h


class Relaxation(AbstractFeedback):
    """First-order Baumgarte feedback, Phi' = -Phi / tau. Each step multiplies Phi by 1 - h/tau:
    stable for tau > h/2, dead-beat at tau = h.

    **Arguments:** `tau`: time constant [s], scalar or one value for each holonomic row.

    Reference: Castro (2025), Notes on constrained multibody dynamics, equations (25), (26).
    """

    tau: Float[Array, "..."]

    @checked
    def __init__(self, tau: Annotated[ArrayLike, positive]):
        self.tau = held(tau)

    def feedback(self, phi, h):
        del h
        return phi / one_each(self.tau, phi.shape[0], "tau")
