"""The system as the user writes it: pure functions of the state."""

import abc
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree, Shaped

from ._compiler import array_namespace, to_jax
from ._coordinates import AbstractCoordinates, Plain
from ._extensible import Extensible
from ._inputs import checked, unjudged
from ._printed import in_a_line, printed
from ._results import RESULTS
from ._types import Coordinates, FetchedArray, Force, MassMatrix, RealScalarLike, Scalar, Velocity


class AbstractStates(eqx.Module):
    """States at one time or at several: a `State`, a `Solution` or another motion, with any leading
    axes. Reports take them all."""

    t: eqx.AbstractVar[Any]
    q: eqx.AbstractVar[Any]
    v: eqx.AbstractVar[Any]

    def points(self) -> tuple[Array, FetchedArray, FetchedArray]:
        """t, q and v with the same leading axes. **Raises:** `ValueError` without states."""
        if self.q is None or self.v is None:
            raise ValueError("States were not saved: `SaveAt(fn=...)` chose other outputs.")
        xp = array_namespace(self.t)
        t = xp.broadcast_to(xp.asarray(self.t, self.q.dtype), self.q.shape[:-1])
        return to_jax(t), self.q, self.v


@checked
@printed
class State(AbstractStates):
    """A point of the motion.

    **Fields:**

    - `t`: time [s].
    - `q`: coordinates, shape `(nq,)` [m, rad, or 1 for quaternions].
    - `v`: generalised velocities, shape `(nv,)` [m/s, rad/s].
    - `report`: what `assemble` found when it made this state; `None` when it was built by hand.
    - `angles`: the angles of a mechanism whose turns count, as in `Solution.angles`, to resume a
      motion [rad]. With `None` a motion starts with each angle within half a turn of its `middle`.
    - `z`: internal states of the system, shape `(nz,)`, such as currents of motors. With `None` a
      motion starts with the `initial_internal` of the system.
    """

    t: Annotated[float | int | Shaped[Array, "*batch"], unjudged]
    q: Annotated[Float[Array, " *batch nq"], unjudged] = eqx.field(converter=jnp.asarray)
    v: Annotated[Float[Array, " *batch nv"], unjudged] = eqx.field(converter=jnp.asarray)
    report: Any = None
    angles: Annotated[Float[Array, " *batch angles"] | None, unjudged] = None
    z: Annotated[Float[Array, " *batch nz"] | None, unjudged] = None

    def __str__(self) -> str:
        rows = [
            f"state at {in_a_line(self.t)} s",
            f"q = {in_a_line(self.q)}",
            f"v = {in_a_line(self.v)}",
        ]
        return "\n".join(rows if self.report is None else [*rows, str(self.report)])


class AbstractSystem(Extensible):
    """A mechanical system with constraints,

        M(q) v' = f(t, q, v, u) + J^T lam,    q' = N(q) v,
        Phi(q, t) = 0,    Psi(q, v, t) = 0.

    Subclass it, name the parameters as fields (every array field is differentiable), and write at
    least `mass_matrix` and `force`. A field with the name of a method below, such as `gap`, would
    replace the method; it is an error when the class is made. All derivatives (J, Phi_t, gamma with
    every term, N') are taken from these functions by forward-mode automatic differentiation.

    A system may have internal states z, z' = internal(t, q, v, u, z), such as currents of motors,
    integrators of controllers, or bristles of friction. Give their values at the start as
    `initial_internal`, and z as the last argument of `force`:

        class Drive(mbd.AbstractSystem):
            inertia: Array
            initial_internal = np.zeros(1)  # the current

            def mass_matrix(self, q):
                return self.inertia[None, None]

            def force(self, t, q, v, u, z):
                return k * z

            def internal(self, t, q, v, u, z):
                return (u - R * z - k * v) / L

    Units are the user's own, SI throughout this documentation.
    """

    @abc.abstractmethod
    def mass_matrix(self, q: Coordinates) -> MassMatrix:
        """M(q), symmetric positive definite, shape `(nv, nv)` [kg, kg m^2]."""

    @abc.abstractmethod
    def force(self, t: RealScalarLike, q: Coordinates, v: Velocity, u: PyTree) -> Force:
        """f = tau - c: all applied forces minus the velocity-dependent bias c(q, v), shape
        `(nv,)` [N, N m]. `u` is what the control returned (`None` without one)."""

    @property
    def initial_internal(self) -> Float[Array, " nz"] | None:
        """The internal states z at the start of a motion whose state does not say, shape `(nz,)`.
        It may be an attribute of the class. With internal states, `force` takes z as its last
        argument, and so do `supplied_power` and `generalised_force`. Default: `None`, no internal
        states."""
        return None

    @property
    def _has_internal(self) -> bool:
        return self.initial_internal is not None

    def internal(
        self, t: RealScalarLike, q: Coordinates, v: Velocity, u: PyTree, z: Float[Array, " nz"]
    ) -> Float[Array, " nz"]:
        """z' of the internal states, shape `(nz,)`."""
        raise TypeError(
            f"`{type(self).__name__}` has `initial_internal`, but no method "
            "`internal(t, q, v, u, z)` that returns their rates."
        )

    def constraint(self, q: Coordinates, t: RealScalarLike) -> Float[Array, "..."]:
        """Holonomic constraints Phi(q, t) = 0; any shape, flattened. Default: none."""
        del t
        return jnp.zeros(0, q.dtype)

    def nonholonomic(self, q: Coordinates, v: Velocity, t: RealScalarLike) -> Float[Array, "..."]:
        """Nonholonomic constraints Psi(q, v, t) = 0, e.g. rolling; any shape. Default: none."""
        del v, t
        return jnp.zeros(0, q.dtype)

    def gap(self, q: Coordinates, t: RealScalarLike) -> Float[Array, " contacts"]:
        """Unilateral constraints g(q, t) >= 0 [m], one for each contact that may close, for
        `ContactImpulse`. Default: none."""
        del t
        return jnp.zeros(0, q.dtype)

    def _overlaps(self, q: Coordinates, gap: np.ndarray, tolerance: float) -> list[str]:
        """Words for each rigid contact that overlaps at q by more than the tolerance, with its
        gap."""
        del q
        law = self.contact_law
        stiffness = np.inf if law is None or law.stiffness is None else np.asarray(law.stiffness)
        outside = (gap < -tolerance) & ~np.isfinite(stiffness)
        return [f"`gap`[{i}] is {gap[i]:.4g}" for i in np.flatnonzero(outside)]

    def slip(
        self, q: Coordinates, v: Velocity, t: RealScalarLike
    ) -> Float[Array, "contacts tangents"]:
        """Relative velocities of the contacts along their tangents [m/s], linear in v but for
        surfaces that move by themselves; one tangent in the plane, two in space. Default: none,
        contacts without friction."""
        del v
        return jnp.zeros((self.gap(q, t).shape[0], 0), q.dtype)

    @property
    def contact_law(self) -> Any:
        """A `ContactLaw` for all contacts: coefficients of friction and restitution, stiffness.
        Default: rigid, plastic, without friction."""
        return None

    def friction_rates(
        self, q: Coordinates, v: Velocity, t: RealScalarLike
    ) -> Float[Array, " frictions"]:
        """Rates along which dry friction acts [m/s, rad/s], linear in v but for surfaces that move
        by themselves, for `ContactImpulse`. While a rate is 0, friction holds what it can. While it
        is not, friction acts against it with its `friction_bounds`. Default: none."""
        del v, t
        return jnp.zeros(0, q.dtype)

    def friction_bounds(
        self,
        q: Coordinates,
        v: Velocity,
        t: RealScalarLike,
        multipliers: Float[Array, " nc"],
        u: PyTree,
    ) -> Float[Array, " frictions"]:
        """The largest size of the friction along each of the `friction_rates` [N, N m], at the
        velocities at the start of a step, so that it may fall while sliding, and at the control
        there, so that a clutch may follow it; with internal states z, they are the last argument.
        `multipliers`: the mean constraint forces of the step, of Phi and then of Psi, so that it
        may grow with a load; they are found together with the friction."""
        raise TypeError(
            f"`{type(self).__name__}` has `friction_rates`, but no method "
            "`friction_bounds(q, v, t, multipliers, u)` that returns the largest friction along "
            "each."
        )

    def switch(
        self, q: Coordinates, v: Velocity, t: RealScalarLike, active: Bool[Array, " rows"]
    ) -> Bool[Array, " rows"] | None:
        """Which rows act in the step from (t, q, v) on, first of Phi and then of Psi, if they do
        not always: latches, clutches, feet. `active`: which of them acted in the step before
        (none in the first step); `active | ...` makes a latch that never opens.

        When rows begin to act, the velocities jump by the plastic impact law:
        M (v+ - v-) = J^T Lam, with J v+ = -Phi_t in these rows and no jump of J v in the others. A
        displacement then removes the remaining Phi, so rows should begin to act near Phi = 0.
        Default: all rows always act."""
        del q, v, t, active
        return None

    def nonideal_force(self, q: Coordinates, v: Velocity, t: RealScalarLike) -> Force:
        """C(q, v, t), shape `(nv,)`: the part of the constraint force that does work (friction of
        a joint, say), in generalised components. Only its component along the admissible motion has
        an effect. The multipliers balance the rest.

        Reference: Udwadia and Kalaba (2002), On the foundations of analytical dynamics, Int. J.
        Non-Linear Mechanics 37, equation of motion for nonideal constraints."""
        del t
        return jnp.zeros_like(v)

    def mechanical_energy(self, t: RealScalarLike, q: Coordinates, v: Velocity) -> Scalar:
        """Kinetic energy, and all potential energies that are known [J], for `energy_tolerance` of
        `simulate`. Default: v . M v / 2, so that the work of all forces counts as supplied."""
        del t
        return v @ (self.mass_matrix(q) @ v) / 2

    def supplied_power(
        self, t: RealScalarLike, q: Coordinates, v: Velocity, u: PyTree, *z: Float[Array, " nz"]
    ) -> Scalar:
        """The rate of change of `mechanical_energy` due to the forces [W]. Default: v . f +
        v . M' v / 2, the rate of the kinetic energy."""

        def apparent(q):
            return v @ (self.mass_matrix(q) @ v) / 2

        _, rate = jax.jvp(apparent, (q,), (self.qdot(q, v),))
        return v @ self.force(t, q, v, u, *z) + rate

    @property
    def coordinates(self) -> AbstractCoordinates:
        """The kinematic map. Override by a class attribute, for instance
        `coordinates = mbd.Product(mbd.Plain(3), mbd.QuaternionWorld())`. Default: q' = v."""
        return Plain()

    def qdot(self, q: Coordinates, v: Velocity) -> Coordinates:
        """q' = N(q) v, linear in v, shape `(nq,)`. Default: as `coordinates` say."""
        return self.coordinates.qdot(q, v)

    def retract(self, q: Coordinates, dp: Velocity) -> Coordinates:
        """q (+) N dp: the coordinates after a small displacement dp = v dt, shape `(nq,)`. To first
        order in dp it is q + N dp."""
        if writes_own_qdot(self):
            return q + self.qdot(q, dp)
        return self.coordinates.retract(q, dp)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """q1 (-) q0: the displacement dp that leads from q0 to q1, shape `(nv,)`; with a
        hand-written `qdot`, the least-squares solution of q1 - q0 = N(q0) dp."""
        if writes_own_qdot(self):
            nv = jax.eval_shape(self.mass_matrix, q0).shape[0]
            return displacement(self, q0, q1 - q0, nv)
        return self.coordinates.difference(q0, q1)

    def normalise(self, q: Coordinates) -> Coordinates:
        """The valid coordinates nearest to q: unit quaternions. Default: by `coordinates`; with a
        hand-written `qdot`, q itself."""
        return q if writes_own_qdot(self) else self.coordinates.normalise(q)

    def carried(self, q0: Coordinates, q1: Coordinates, v: Velocity) -> Velocity:
        """The velocities v at q0, carried to q1 as in motion without forces. The velocity-level
        methods end a step with them. Default: v unchanged."""
        del q0, q1
        return v

    def result(self, q: Coordinates) -> RESULTS:
        """The verdict on the coordinates at q (gimbal lock, vanished quaternion)."""
        return self.coordinates.result(q)


def writes_own_qdot(system: AbstractSystem) -> bool:
    """Whether the user wrote `qdot` instead of naming `coordinates`."""
    return type(system).qdot is not AbstractSystem.qdot


def has_internal(system: AbstractSystem) -> bool:
    """Whether the system has internal states."""
    return system._has_internal


def has_plain_coordinates(system: AbstractSystem) -> bool:
    """Whether q' = v, by the types alone."""
    return not writes_own_qdot(system) and isinstance(system.coordinates, Plain)


def kinematic_matrix(system: AbstractSystem, q: Coordinates, nv: int) -> Float[Array, "nq {nv}"]:
    """N(q)."""
    return jax.jacfwd(lambda dp: system.qdot(q, dp))(jnp.zeros(nv, q.dtype))


def displacement(system: AbstractSystem, q: Coordinates, dq: Coordinates, nv: int) -> Velocity:
    """dp with N(q) dp = dq in the sense of least squares, so that a change of a quaternion's length
    has no effect."""
    if has_plain_coordinates(system):
        return dq
    N = kinematic_matrix(system, q, nv)
    return jnp.linalg.solve(N.T @ N, N.T @ dq)
