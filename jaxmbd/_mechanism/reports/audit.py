"""Energy and momentum along a motion, and their balance."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._compiler import array_namespace, as_one_program, refuted, to_jax
from ..._inputs import checked
from ..._printed import printed
from ..._results import succeeded
from ..._simulate import Solution
from ..._system import State
from ..._types import Control
from ..batching import batched
from ..energy import (
    gravitational_energies,
    kinetic_energies,
    powers,
    rotor_energies,
    stored_energies,
)
from ..mechanism import Mechanism
from ..pose import Pose, Twist
from .violation import multipliers_of, points_of


@printed
class Audit(eqx.Module):
    """Energies, powers and momenta along a motion. All numbers have the leading axes of the
    solution, the saved times last. `print` it.

    **Fields:**

    - `t`: saved times [s].
    - `kinetic`, `gravitational`: energies [J] of all bodies, rotors of actuators included;
      `stored`: energy of all force elements, in springs for example; `total`: the sum of the three.
    - `powers`: name of each force element -> power [W] that it gives to the bodies.
    - `supplied`: power [W] of the force elements beyond what comes from their stored energy:
      positive for actuators, negative for dampers and friction.
    - `constraint_power`: power lam . J v of all joints [W], 0 without prescribed motion.
    - `work`: integral of the last two from the first saved time [J], by the trapezoidal rule with
      end corrections, of fourth order in the spacing of the saved times.
    - `imbalance`: total - total at the first saved time - work [J]; 0 for an exact motion.
    - `momentum`: [kg m/s], `angular_momentum`: about the origin of the world [kg m^2/s], of all
      bodies, shapes `(*batch, ns, 3)`.
    - `center`: the centre of mass of all bodies [m], `(*batch, ns, 3)`.
    """

    t: Float[Array, "*batch ns"]
    kinetic: Float[Array, "*batch ns"]
    gravitational: Float[Array, "*batch ns"]
    stored: Float[Array, "*batch ns"]
    powers: dict[str, Float[Array, "*batch ns"]]
    supplied: Float[Array, "*batch ns"]
    constraint_power: Float[Array, "*batch ns"]
    work: Float[Array, "*batch ns"]
    momentum: Float[Array, "*batch ns 3"]
    angular_momentum: Float[Array, "*batch ns 3"]
    center: Float[Array, "*batch ns 3"]

    @property
    def total(self) -> Float[Array, "*batch ns"]:
        parts = self.kinetic, self.gravitational, self.stored
        return to_jax(sum(map(array_namespace(parts).asarray, parts)))

    @property
    def given(self) -> dict[str, Float[Array, "*batch ns"]]:
        """Name of each force element -> energy [J] that it has given to the bodies since the first
        saved time: positive for what goes in, negative for what is taken out or stored."""
        return {name: _integral(self.t, power) for name, power in self.powers.items()}

    @property
    def imbalance(self) -> Float[Array, "*batch ns"]:
        xp = array_namespace(self)
        total, work = xp.asarray(self.total), xp.asarray(self.work)
        return to_jax(total - total[..., :1] - work)

    def __str__(self) -> str:
        def line(what, x, unit):
            x = np.asarray(x)
            return f"{what:24} {np.min(x): .6e} to {np.max(x): .6e} {unit}"

        rows = [
            line("kinetic energy", self.kinetic, "J"),
            line("gravitational energy", self.gravitational, "J"),
            line("stored energy", self.stored, "J"),
            line("total energy", self.total, "J"),
            line("work of forces, drives", self.work, "J"),
            line("imbalance", self.imbalance, "J"),
        ]
        for what, x, unit in (
            ("momentum", self.momentum, "kg m/s"),
            ("angular momentum", self.angular_momentum, "kg m^2/s"),
        ):
            rows += [
                line(f"{what} {axis}", np.asarray(x)[..., i], unit) for i, axis in enumerate("xyz")
            ]
        rows += [line(f'given by "{name}"', x, "J") for name, x in self.given.items()]
        return "\n".join(rows)


@checked
def audit(mechanism: Mechanism, sol: Solution, control: Control | None = None) -> Audit:
    """Evaluate the balance of energy and momentum along a solution,

        T + V (t) = T + V (t0) + integral of the power of actuators, dampers and drives.

    **Arguments:** `sol`: of `simulate`, with any leading axes before the saved times (`SaveAt`
    chooses them; `work` needs a small spacing); `control` of the simulation.

    **Returns:** an `Audit`; differentiable.

    **Raises:** `ValueError` if states were not saved, if they belong to another mechanism, and
    outside `jax.jit` if the simulation failed, since values after a failure are no motion.
    """
    t, q, v = points_of(mechanism, sol)
    lam = multipliers_of(mechanism, sol)
    failed = ~succeeded(sol.result)
    if refuted(np.logical_not, failed):
        raise ValueError(
            f"{int(np.sum(failed))} of {np.size(failed)} motions failed, and what is held after a "
            "failure has no balance. See `sol.result`, and give the motions that succeeded."
        )
    return _audit(mechanism, control, t, q, v, lam, sol.angles, sol.z)


@eqx.filter_jit
def _audit(whole, control, t, q, v, multipliers, angles, z) -> Audit:
    def one(t, q, v, lam, *more):
        *angles, z = more if internal else (*more, None)
        mechanism = whole.near(*angles) if angles else whole
        u = None if control is None else control(t, q, v)
        state = State(t, q, v, z=z)
        elements = powers(mechanism, state, u)
        supplied = -_sum({name: x.lost for name, x in elements.items()}, t)
        momentum, angular_momentum, center = _momenta(mechanism, q, v)
        return dict(
            kinetic=_sum(kinetic_energies(mechanism, state), t)
            + _sum(rotor_energies(mechanism, state), t),
            gravitational=_sum(gravitational_energies(mechanism, state), t),
            stored=_sum(stored_energies(mechanism, state), t),
            powers={name: x.power for name, x in elements.items()},
            supplied=supplied,
            constraint_power=_constraint_power(mechanism, t, q, v, lam),
            momentum=momentum,
            angular_momentum=angular_momentum,
            center=center,
        )

    counted = [] if angles is None else [(angles, 1)]
    internal = [] if z is None else [(z, 1)]
    found = batched(one, (t, 0), (q, 1), (v, 1), (multipliers, 1), *counted, *internal)
    work = _integral(t, found["supplied"] + found["constraint_power"])
    return Audit(t=t, work=work, **found)


def _sum(table, like):
    return sum(table.values(), jnp.zeros_like(like))


def _constraint_power(mechanism, t, q, v, lam):
    """lam . J v, by one directional derivative."""
    along = mechanism.qdot(q, v)
    _, phidot = jax.jvp(lambda q: mechanism.constraint(q, t), (q,), (along,))
    _, psi = jax.jvp(lambda w: mechanism.nonholonomic(q, w, t), (v,), (v,))
    return lam @ jnp.concatenate([phidot, psi])


def _momenta(mechanism, q, v) -> tuple[Array, ...]:
    """Momentum, angular momentum and centre of mass of all bodies."""

    def of_body(body, x, w):
        pose, twist = Pose.of(x), Twist.of(w)
        moment = body.inertia.mass * pose.point(body.inertia.center)
        return *body.momentum(pose, twist), moment, body.inertia.mass

    tables = mechanism.tables
    p, L, moment, mass = mechanism.body_stack.map(of_body, tables.poses(q), tables.twists(v))
    p, L, moment = (jnp.sum(x, axis=1) for x in (p, L, moment))
    return p, L, moment / jnp.sum(mass)


@as_one_program
def _integral(t: Float[Array, "*batch ns"], y: Float[Array, "*batch ns"]) -> Array:
    """Integral of y over t from the first time: h (y0 + y1) / 2 - h^2 (y1' - y0') / 12 for each
    interval. The slopes come from parabolas through neighbours, and of cubics at the ends."""
    h = jnp.diff(t)
    part = h * (y[..., 1:] + y[..., :-1]) / 2
    if t.shape[-1] >= 4:
        part = part - h**2 * jnp.diff(_slopes(t, y)) / 12
    return jnp.concatenate([jnp.zeros_like(y[..., :1]), jnp.cumsum(part, axis=-1)], axis=-1)


def _slopes(t, y):
    def divided(y, order):
        dt = t[..., order:] - t[..., :-order]
        return jnp.diff(y) / jnp.where(dt > 0, dt, 1.0)  # after a failure the time stands still

    first = divided(y, 1)
    second = divided(first, 2)
    third = divided(second, 3)
    h = jnp.diff(t)
    inner = first[..., :-1] + h[..., :-1] * second

    def end(i, j, k, step):
        near, far = step * h[..., i], step * (h[..., i] + h[..., j])
        return first[..., i] - near * second[..., k] + near * far * third[..., k]

    start, stop = end(0, 1, 0, 1), end(-1, -2, -1, -1)
    return jnp.concatenate([start[..., None], inner, stop[..., None]], axis=-1)
