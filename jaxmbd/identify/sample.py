"""A moment of a simulated motion, which sensors read, and the motion that it belongs to."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import contact_counts
from .._equations import carrying
from .._mechanism import Mechanism
from .._methods import LagrangeMultipliers, Motion, point
from .._system import AbstractStates, AbstractSystem
from .._types import Coordinates, RealScalarLike, Rows, Scalar, Velocity
from .driven import Loads

# Times this close to a step, in steps, count as the time of the step.
_ON_GRID = 1e-6


def on_grid(s: Float[Array, " n"]) -> Float[Array, " n"]:
    """Times in steps, as the times of steps if they are close."""
    nearest = jnp.round(s)
    return jnp.where(jnp.abs(s - nearest) < _ON_GRID, nearest, s)


def interpolated(
    x: Float[Array, "steps d"], s: Float[Array, " n"], points: int
) -> Float[Array, "n d"]:
    """Interpolate x at the times s, counted in steps, by the polynomial through the nearest
    `points` steps (in Lagrange form). It is exact at steps.

    A shorter step to each time would be exact too. But it needs a second program as long as that of
    the loop, for all times at once, which takes several times longer to compile and run.
    """
    points = min(points, len(x))
    first = jnp.floor(s) - (points - 1) // 2
    first = jnp.clip(first, 0, len(x) - points)
    ahead = s - first
    first = first.astype(jnp.int32)
    total = jnp.zeros((len(s), x.shape[1]), x.dtype)
    for j in range(points):
        weight = jnp.ones_like(s)
        for k in range(points):
            if k != j:
                weight = weight * (ahead - k) / (j - k)
        total = total + weight[:, None] * x[first + j]
    return total


class Sample(AbstractStates):
    """A moment of a simulated motion, the input of sensors.

    **Fields:** `system`, `control`, `t`, `q`, `v`; `z`: the internal states, `None` without any;
    `motion`: the simulated motion, `None` if only this moment is known; `rounded`: whether sensors
    round their readings, as `measure` asks for and fits do not; `driven`: what drives a prescribed
    motion, see `Prescribed`, and `None` for others.
    """

    system: AbstractSystem
    control: Any
    t: RealScalarLike
    q: Coordinates
    v: Velocity
    z: Float[Array, " nz"] | None = None
    motion: "SavedMotion | None" = None
    rounded: bool = eqx.field(static=True, default=False)
    driven: Loads | None = None

    @property
    def u(self) -> Any:
        """The control, `None` without one; in a prescribed motion the efforts of the drives."""
        if self.driven is not None:
            return self.driven.efforts
        return None if self.control is None else self.control(self.t, self.q, self.v)

    @property
    def acceleration(self) -> Velocity:
        """v', shape `(nv,)`. With contacts or dry friction it is the mean over the step of the
        simulation that begins here, with impacts; at the end of the motion over the last one.

        **Raises:** `ValueError` with contacts or dry friction if only this moment is known."""
        if self.driven is not None:
            return self.driven.acceleration
        if self._switches:
            return self.whole_motion.mean_acceleration(self.t)
        return self._motion.acceleration

    @property
    def multipliers(self) -> Rows:
        """lam, shape `(nc,)`, of the constrained motion.

        **Raises:** `ValueError` with contacts or dry friction, whose share is not saved."""
        if self.driven is not None:
            return self.driven.multipliers
        if self._switches:
            raise ValueError(
                "A sensor asks for the `multipliers` of a motion with contacts or dry friction, "
                "which change them: look at those of `simulate`."
            )
        return self._motion.multipliers

    def at(self, t: RealScalarLike) -> "Sample":
        """Another moment of the same motion, for sensors that lag. Times before the start of the
        simulation give the start, and those after its end the end.

        **Raises:** `ValueError` if only this moment is known."""
        return self.whole_motion.at(t)

    @property
    def whole_motion(self) -> "SavedMotion":
        """`motion`. **Raises:** `ValueError` if only this moment is known."""
        if self.motion is None:
            raise ValueError(
                "A sensor that lags, and accelerations with contacts or dry friction, need other "
                "moments of the motion too, but this sample is a single one: let `fit`, `predict` "
                "or `measure` read it."
            )
        return self.motion

    @property
    def _switches(self) -> bool:
        """Whether forces depend on what is in contact, and on what sticks."""
        return any(contact_counts(self.system, self.q, self.v))

    @property
    def _motion(self) -> Motion:
        method = LagrangeMultipliers()
        control = carrying(self.control, self.z)
        here = point(self.system, control, self.t, self.q, self.v)
        return method.motion(here, method.factorise(here))

    @property
    def mechanism(self) -> Mechanism:
        """The system. **Raises:** `ValueError` if it is not a `Mechanism`."""
        if not isinstance(self.system, Mechanism):
            raise ValueError(
                f"This sensor reads from a `Mechanism`, but the system is a "
                f"{type(self.system).__name__}: write a function of the sample, such as "
                "`lambda sample: sample.q`."
            )
        return self.system


class SavedMotion(eqx.Module):
    """A simulated motion at all of its steps, and between them by polynomials.

    **Fields:** `system`, `control`; `t0`, `dt`; `states`: q, v and the internal states at each
    step, `(steps + 1, nq + nv + nz)`; `nq`, `nv`; `points`: the number of steps from which a state
    between them is interpolated; `rounded`: as in `Sample`.
    """

    system: AbstractSystem
    control: Any
    t0: Scalar
    dt: Scalar
    states: Float[Array, "steps d"]
    nq: int = eqx.field(static=True)
    nv: int = eqx.field(static=True)
    points: int = eqx.field(static=True)
    rounded: bool = eqx.field(static=True, default=False)

    def moment(self, t: RealScalarLike, x: Float[Array, " d"]) -> Sample:
        """The sample with this time and state."""
        end = self.nq + self.nv
        q, v, *z = jnp.split(x, [self.nq, end] if x.size > end else [self.nq])
        own = z[0] if z else None
        return Sample(
            system=self.system,
            control=self.control,
            t=t,
            q=q,
            v=v,
            z=own,
            motion=self,
            rounded=self.rounded,
        )

    def at(self, t: RealScalarLike) -> Sample:
        """The sample at a time, or at the nearest one of the motion. Derivatives by t are those of
        the polynomials, also at steps."""
        s = self.steps_at(t)
        x = interpolated(self.states, s[None], self.points)[0]
        return self.moment(self.t0 + s * self.dt, x)

    def steps_at(self, t: RealScalarLike | Float[Array, " n"]) -> Float[Array, "..."]:
        """Times, or the nearest ones of the motion, in steps from the start."""
        s, last = (jnp.asarray(t, self.states.dtype) - self.t0) / self.dt, len(self.states) - 1
        # With room for rounding, since the ends themselves have derivatives.
        s = jnp.where(s < -_ON_GRID, 0.0, s)
        return jnp.where(s > last + _ON_GRID, last, s)

    def mean_acceleration(self, t: RealScalarLike) -> Velocity:
        """The change of v over the step that begins at a time or holds it, divided by `dt`."""
        k = jnp.floor(self.steps_at(t) + _ON_GRID).astype(jnp.int32)
        k = jnp.minimum(k, len(self.states) - 2)
        v = self.states[:, self.nq : self.nq + self.nv]
        return (v[k + 1] - v[k]) / self.dt

    def at_steps(self, sensor: Callable[[Sample], Array]) -> Float[Array, "steps m"]:
        """The readings of a sensor at all steps."""
        t = self.t0 + self.dt * jnp.arange(len(self.states), dtype=self.states.dtype)
        return jax.vmap(lambda t, x: jnp.ravel(sensor(self.moment(t, x))))(t, self.states)
