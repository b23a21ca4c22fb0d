"""How an experiment is driven, and within which limits."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._extensible import Extensible
from .._inputs import Numbers, at_least, checked, number, positive, positive_or_infinite
from .._methods import AbstractEnforcement
from .._types import RealScalarLike
from .driven import Drive
from .sample import Sample
from .signals import AbstractSignal


class AbstractExcitation(Extensible):
    """How an experiment is driven: `Prescribed` or `Applied`."""

    signal: eqx.AbstractVar[AbstractSignal]
    lower: eqx.AbstractVar[Float[np.ndarray, " channels"]]
    upper: eqx.AbstractVar[Float[np.ndarray, " channels"]]


@checked
class Prescribed(AbstractExcitation):
    """Drives move some coordinates along signals, and everything else follows: as many drives as
    there are freedoms, also in closed loops. Measured are the efforts of the drives, [N] or [N m],
    which are linear in masses, first moments and inertias.

    **Fields:**

    - `drives`: one or a sequence of these, as in `mbd.analysis.kinematics`: the name of a joint of
      a mechanism; a scalar coordinate; or a function of q.
    - `signal`: the motion between `lower` and `upper`, one number or one for each drive [rad, m].
    - `rate`, `acceleration`, `effort`: the largest ones, likewise; default infinite.
    - `points`: the search computes with no more than so many samples, in place of all.
    - `u`: constant inputs of the system beside the drives; default none.
    """

    drives: Any = eqx.field(static=True)
    signal: AbstractSignal
    lower: Annotated[Numbers, number] = eqx.field(converter=np.atleast_1d)
    upper: Annotated[Numbers, number] = eqx.field(converter=np.atleast_1d)
    rate: Annotated[Numbers, positive_or_infinite] = np.inf
    acceleration: Annotated[Numbers, positive_or_infinite] = np.inf
    effort: Annotated[Numbers, positive_or_infinite] = np.inf
    points: Annotated[int, at_least(2)] = eqx.field(static=True, default=100)
    u: PyTree = None


@checked
class Applied(AbstractExcitation):
    """A control u(t) without feedback is applied, and the motion is simulated.

    **Fields:**

    - `signal`: u between `lower` and `upper`, one number for each input, shape `(nu,)`.
    - `dt`: the largest step of the simulations [s]. `enforcement`, `scheme`: as in `fit`.
    """

    signal: AbstractSignal
    lower: Annotated[Numbers, number] = eqx.field(converter=np.atleast_1d)
    upper: Annotated[Numbers, number] = eqx.field(converter=np.atleast_1d)
    dt: Annotated[float, positive]
    enforcement: AbstractEnforcement | None = None
    scheme: diffrax.AbstractSolver | None = None


@checked
class Limit(eqx.Module):
    """Bounds of what a sensor reads, at all times: of the angle of a joint in a loop, of a force,
    or of the distance of two points.

    **Fields:** `sensor`: a function of a `Sample`, as in `fit`; `lower`, `upper`: one number or one
    for each number that it reads; default infinite.
    """

    sensor: Callable[[Sample], Any]
    lower: Annotated[Numbers, number] = -np.inf
    upper: Annotated[Numbers, number] = np.inf


class Course(eqx.Module):
    """The signals of several channels between their bounds. As `control(t, q, v)` it is applied.

    **Fields:** `signal`; `lower`, `upper`: `(channels,)`; `coefficients`: `(channels, size)`.
    """

    signal: AbstractSignal
    lower: Float[Array, " channels"]
    upper: Float[Array, " channels"]
    coefficients: Float[Array, "channels size"]

    def __call__(self, t, q=None, v=None) -> Float[Array, " channels"]:
        del q, v
        share = jax.vmap(lambda c: self.signal(c, t))(self.coefficients)
        return (self.lower + self.upper) / 2 + (self.upper - self.lower) / 2 * share

    def at(self, t: RealScalarLike) -> Drive:
        """The values with their first two derivatives by the time."""

        def rate(t):
            return jax.jvp(self, (t,), (jnp.ones_like(t),))

        t = jnp.asarray(t, self.coefficients.dtype)
        (x, v), (_, a) = jax.jvp(rate, (t,), (jnp.ones_like(t),))
        return Drive(x, v, a)


class Bounds(eqx.Module):
    """Bounds of the columns of a table of values, as conditions d <= 0 in shares of their range.
    Only finite bounds have conditions.

    **Fields:** `columns`; `sign`: 1 for upper and -1 for lower bounds; `bound`; `scale`; `margin`:
    by how much the conditions are tightened.
    """

    columns: np.ndarray
    sign: np.ndarray
    bound: np.ndarray
    scale: np.ndarray
    margin: np.ndarray

    @classmethod
    def of(cls, lower: np.ndarray, upper: np.ndarray) -> "Bounds":
        both = np.isfinite(lower) & np.isfinite(upper)
        one = np.where(np.isfinite(upper), np.abs(upper), np.abs(lower))
        with np.errstate(invalid="ignore"):
            scale = np.where(both, (upper - lower) / 2, one)
        scale = np.where(scale > 0, scale, 1.0)
        parts = [(np.flatnonzero(np.isfinite(x)), s, x) for s, x in ((1.0, upper), (-1.0, lower))]
        columns = np.concatenate([i for i, _, _ in parts])
        sign = np.concatenate([np.full(len(i), s) for i, s, _ in parts])
        bound = np.concatenate([x[i] for i, _, x in parts])
        return cls(columns, sign, bound, scale[columns], np.zeros(len(columns)))

    def conditions(self, values: Any) -> Any:
        """d, `(n, bounds)`, which is not positive where the bounds of values `(n, k)` hold."""
        sign, bound, scale, margin = (
            x[None] for x in (self.sign, self.bound, self.scale, self.margin)
        )
        return sign * (values[:, self.columns] - bound) / scale + margin


def each_channel(name: str, x: Any, count: int) -> Float[np.ndarray, " channels"]:
    """One number for each channel. **Raises:** `ValueError` for another number of them."""
    x = np.asarray(x, float)
    if x.shape not in ((), (1,), (count,)):
        raise ValueError(
            f"`{name}` of the excitation must be one number or one for each of the {count} "
            f"channels, but has shape {x.shape}."
        )
    return np.broadcast_to(x, (count,))


def in_sequence(drives: Any) -> tuple[Any, ...]:
    """The drives as a tuple."""
    several = isinstance(drives, Sequence) and not isinstance(drives, str)
    return tuple(drives) if several else (drives,)
