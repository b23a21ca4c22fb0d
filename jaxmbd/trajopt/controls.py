"""Controls u(t, q, v): tables in time, feedback along a motion, and the guess of a search."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from .._checks import check_no_nan, with_dtype
from .._compiler import as_one_program, broadcast, clip, refuted
from .._extensible import Extensible
from .._inputs import checked, finite, number, positive, shown, unjudged
from .._system import AbstractSystem
from .._tangent_space import difference, displaced
from .._types import Control, Coordinates, RealScalarLike, Velocity
from .problem import Problem

# Times this close to a grid point, as a share of an interval, count as that grid point.
_ON_GRID = 1e-6
# The largest distance of a squashed guess from the middle, as a share of the distance of a bound
# from there. Closer to a bound the derivative vanishes.
_INSIDE = 0.98


class AbstractControl(Extensible):
    """A control that defines its action during an interval of the grid of a `Problem`."""

    # The fields that optimisers do not change.
    constants: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def __call__(self, t: RealScalarLike, q: Coordinates, v: Velocity) -> Float[Array, " nu"]:
        """u(t, q, v), for `simulate(control=...)`."""

    @abc.abstractmethod
    def within(self, t: RealScalarLike, q: Coordinates, v: Velocity) -> Control:
        """The control during the interval that begins at (t, q, v)."""


@checked
class Held(AbstractControl):
    """The constant control u."""

    u: Annotated[Float[Array, "..."], unjudged]

    def __call__(self, t, q, v):
        del t, q, v
        return self.u

    def within(self, t, q, v):
        del t, q, v
        return self


class _Table(AbstractControl):
    """Values on a grid. The table does not change from interval to interval."""

    constants: ClassVar[tuple[str, ...]] = ("t0", "dt")
    # Rows of `values` beyond the number of intervals.
    more: ClassVar[int] = 1

    t0: Float[Array, "..."] = eqx.field(converter=jnp.asarray)
    dt: Annotated[Float[Array, "..."], positive] = eqx.field(converter=jnp.asarray)
    # The values may be NaN after a failed search. The functions that use them report it.
    values: Annotated[Float[Array, "*batch points nu"], unjudged] = eqx.field(converter=jnp.asarray)

    def __check_init__(self):
        if self.values.ndim < 2 or self.values.shape[-2] <= self.more:
            raise ValueError(
                f"Argument `values` must have shape (n, nu) with n from {self.more + 1}, but has "
                f"{self.values.shape}."
            )

    def place(self, t: RealScalarLike) -> tuple[Int[Array, ""], Float[Array, ""]]:
        """The interval that contains t, and the share of it that has passed."""
        return place(self.t0, self.dt, t, self.values.shape[0] - self.more)

    def within(self, t, q, v) -> Control:
        del t, q, v
        return self


@checked
class PiecewiseConstant(_Table):
    """The control u = values[k] from t0 + k dt to t0 + (k + 1) dt. It has the first value before
    the first interval and the last value after the last one.

    In the methods of this package each value is exactly constant in its interval. The schemes of
    `simulate` also evaluate u at the end of a step. If u jumps there, the step includes a part of
    the jump, which is an error of the step size times the jump. So choose small steps there, or use
    `mbd.trajopt.perform`, which follows the grid of a `Problem`.

    **Arguments:**

    - `t0`: the start [s]. `dt`: the length of an interval [s]. `values`: shape `(n, nu)`.
    """

    more: ClassVar[int] = 0

    def __call__(self, t, q, v):
        del q, v
        return self.values[self.place(t)[0]]

    def within(self, t, q, v):
        return Held(self(t, q, v))


@checked
class PiecewiseLinear(_Table):
    """The control with values[k] at t0 + k dt, linear between, and constant before and after.

    **Arguments:**

    - `t0`: the start [s]. `dt`: the length of an interval [s]. `values`: shape `(n + 1, nu)`.
    """

    def __call__(self, t, q, v):
        del q, v
        k, s = self.place(t)
        return (1 - s) * self.values[k] + s * self.values[k + 1]


@checked
class PiecewiseQuadratic(_Table):
    """The control whose u in each interval is a parabola through the values at its ends and in its
    middle. It is constant before and after the table.

    **Arguments:**

    - `t0`: the start [s]. `dt`: the length of an interval [s]. `values`: u at the grid points,
      shape `(n + 1, nu)`. `middles`: u in the middles of the intervals, shape `(n, nu)`.
    """

    middles: Annotated[Float[Array, "*batch n nu"], unjudged] = eqx.field(converter=jnp.asarray)

    def __check_init__(self):
        expected = (*self.values.shape[:-2], self.values.shape[-2] - 1, self.values.shape[-1])
        if self.middles.shape != expected:
            raise ValueError(
                f"Argument `middles` must have shape {expected}, one row for each interval between "
                f"`values`, but has {self.middles.shape}."
            )

    def __call__(self, t, q, v):
        del q, v
        k, s = self.place(t)
        begin, middle, end = self.values[k], self.middles[k], self.values[k + 1]
        return (2 * s - 1) * (s - 1) * begin + 4 * s * (1 - s) * middle + s * (2 * s - 1) * end


@checked
class Feedback(AbstractControl):
    r"""Linear feedback along a nominal motion,

    $$
    u = \mathrm{clip}\big(u_k + K_k\,(x \ominus \bar x(t))\big), \qquad
    x \ominus \bar x = (q \ominus \bar q,\; v - \bar v),
    $$

    where the displacement from the nominal coordinates has `nv` numbers, so that it is right for
    quaternions too. The nominal motion is interpolated between grid points; u_k and K_k are
    constant in each interval. On the grid of a `Problem`, u is sampled at the start of each
    interval, as in a digital controller.

    **Arguments:**

    - `system`: the system of the coordinates. `t0`, `dt`: the start and interval of the grid [s].
    - `q`, `v`: the nominal motion, shapes `(n + 1, nq)`, `(n + 1, nv)`. `u`: its u_k, `(n, nu)`.
    - `gains`: K, shape `(n, nu, 2 nv)`. `lower`, `upper`: the bounds of u, shape `(nu,)`.
    """

    constants: ClassVar[tuple[str, ...]] = ("system", "t0", "dt", "q", "v", "lower", "upper")

    system: AbstractSystem
    t0: Float[Array, "..."]
    dt: Annotated[Float[Array, "..."], positive]
    q: Annotated[Float[Array, "*batch points nq"], unjudged]
    v: Annotated[Float[Array, "*batch points nv"], unjudged]
    u: Annotated[Float[Array, "*batch n nu"], unjudged]
    gains: Annotated[Float[Array, "*batch n nu nx"], unjudged]
    lower: Annotated[Float[Array, "*batch nu"], number]
    upper: Annotated[Float[Array, "*batch nu"], number]

    def __check_init__(self):
        _check_bounds(self)

    def __call__(self, t, q, v):
        k, s = place(self.t0, self.dt, t, self.u.shape[0])
        here, there = (self.q[k], self.v[k]), (self.q[k + 1], self.v[k + 1])
        nominal = displaced(self.system, *here, s * difference(self.system, here, there))
        u = self.u[k] + self.gains[k] @ difference(self.system, nominal, (q, v))
        return clip(u, self.lower, self.upper)

    def within(self, t, q, v):
        return Held(self(t, q, v))


def _check_bounds(control: Any) -> None:
    """**Raises:** `ValueError` unless lower <= upper, if known."""
    lower, upper = control.lower, control.upper
    if refuted(np.less_equal, lower, upper):
        raise ValueError(
            f"Argument `lower` of {type(control).__name__} must not exceed `upper`, but is "
            f"{shown(lower)}, and `upper` {shown(upper)}."
        )


class AbstractBounded(AbstractControl):
    """Another control, mapped to values between bounds: a way to keep lower <= u <= upper in a
    search without bounds.

    **Fields:** `control`: a callable (t, q, v) -> u. `lower`, `upper`: scalars or of shape `(nu,)`.
    """

    constants: ClassVar[tuple[str, ...]] = ("lower", "upper")

    control: Control
    lower: Annotated[Float[Array, "..."], number] = eqx.field(converter=jnp.asarray)
    upper: Annotated[Float[Array, "..."], number] = eqx.field(converter=jnp.asarray)

    def __check_init__(self):
        _check_bounds(self)

    def within(self, t, q, v):
        return type(self)(within(self.control, t, q, v), self.lower, self.upper)

    @abc.abstractmethod
    def start(self) -> "AbstractBounded":
        """The control with which a search starts, whose u is as near to that of the unbounded
        control as its derivatives allow."""

    @abc.abstractmethod
    def projected(self) -> "AbstractBounded":
        """The control after a step of an optimiser."""

    def _with_values(self, new: Callable[[Array], Array]) -> "AbstractBounded":
        """The control with other values in its table."""
        return eqx.tree_at(lambda c: c.control.values, self, replace_fn=new)


@checked
class Saturated(AbstractBounded):
    """Any control, clipped to bounds. A search clips the values of a table after each step, so that
    controls can reach the bounds exactly. It suits optimisers without a line search, like Adam.

    **Arguments:**

    - `control`: a callable (t, q, v) -> u. `lower`, `upper`: scalars or of shape `(nu,)`.
    """

    def __call__(self, t, q, v):
        u = self.control(t, q, v)
        # Not `clip`, which has half a derivative at a bound.
        u = jnp.where(u < self.lower, self.lower, u)
        return jnp.where(u > self.upper, self.upper, u)

    def start(self):
        if not isinstance(self.control, PiecewiseConstant | PiecewiseLinear):
            raise ValueError(
                "A search within `Saturated` bounds needs a table such as `PiecewiseConstant`, but "
                f"the control is a {type(self.control).__name__}: use `mbd.trajopt.Squashed`."
            )
        return self.projected()

    def projected(self):
        return self._with_values(lambda u: jnp.clip(u, self.lower[None], self.upper[None]))


@checked
class Squashed(AbstractBounded):
    """Any control z, mapped to values between bounds by a smooth function,

        u = c + d tanh((z - c) / d),         c = (lower + upper) / 2, d = (upper - lower) / 2,
        u = lower + log(1 + exp(z - lower))  where only the lower bound is finite,
        u = upper - log(1 + exp(upper - z))  where only the upper one is,

    and u = z where neither is. u is close to z in the middle between two bounds, and a few units of
    u away from a single one. If the bounds are equal, u equals them for every z.

    In a search it suits every optimiser and every policy. Controls do not reach the bounds. The
    values of a table are transformed to z. The output of any other policy is z.

    **Arguments:**

    - `control`: a callable (t, q, v) -> z. `lower`, `upper`: scalars or of shape `(nu,)`.
    """

    def __call__(self, t, q, v):
        z = self.control(t, q, v)
        two, middle, half = self._scales()
        held = half == 0
        # If the bounds are equal, the limit of tanh is the sign. It decides which bound u follows.
        share = jnp.where(held, 1.0, (z - middle) / jnp.where(held, 1.0, half))
        share = jnp.where(held, jnp.sign(z - middle), jnp.tanh(share))
        above, lower, below, upper = self._sides()
        one = jnp.where(above, lower + jax.nn.softplus(z - lower), z)
        one = jnp.where(below, upper - jax.nn.softplus(upper - z), one)
        return jnp.where(two, middle + half * share, one)

    @as_one_program
    def inverse(self, u: Array, inside: RealScalarLike) -> Array:
        """The z of u. First u is clipped to the share `inside` of the distance from the middle to
        the bounds, or to the distance 1 - `inside` from a single bound."""
        two, middle, half = self._scales()
        share = jnp.clip((u - middle) / jnp.where(half == 0, 1.0, half), -inside, inside)
        above, lower, below, upper = self._sides()

        def away(distance):
            distance = jnp.maximum(distance, 1 - inside)
            return distance + jnp.log1p(-jnp.exp(-distance))  # log(exp(distance) - 1)

        one = jnp.where(above, lower + away(u - lower), u)
        one = jnp.where(below, upper - away(upper - u), one)
        return jnp.where(two, middle + half * jnp.arctanh(share), one)

    def start(self):
        if not isinstance(self.control, PiecewiseConstant | PiecewiseLinear):
            return self
        return self._with_values(lambda u: jax.vmap(self.inverse, (0, None))(u, _INSIDE))

    def projected(self):
        return self

    def _scales(self):
        """Where both bounds are finite; there, their middle and half their distance."""
        two = jnp.isfinite(self.lower) & jnp.isfinite(self.upper)
        lower, upper = jnp.where(two, self.lower, -1.0), jnp.where(two, self.upper, 1.0)
        return two, (lower + upper) / 2, (upper - lower) / 2

    def _sides(self):
        """Where only the lower bound is finite, and that bound; likewise for the upper one.
        Elsewhere the bounds are replaced by 0."""
        from_below, from_above = jnp.isfinite(self.lower), jnp.isfinite(self.upper)
        above, below = from_below & ~from_above, from_above & ~from_below
        return above, jnp.where(above, self.lower, 0.0), below, jnp.where(below, self.upper, 0.0)


@checked
class Sampled(AbstractControl):
    """Any control as applied by a digital controller: it is evaluated at the start of each interval
    of the grid and kept constant in it. `simulate` has no such grid, so it acts continuously there.

    **Arguments:**

    - `control`: a callable (t, q, v) -> u.
    """

    control: Control

    def __call__(self, t, q, v):
        return self.control(t, q, v)

    def within(self, t, q, v):
        return Held(self(t, q, v))


def _is_own(x: PyTree) -> TypeGuard[AbstractControl]:
    return isinstance(x, AbstractControl)


def within(control: Control, t: RealScalarLike, q: Coordinates, v: Velocity) -> Control:
    """The control during the interval that begins at (t, q, v). Callables other than an
    `AbstractControl` act continuously."""
    return control.within(t, q, v) if _is_own(control) else control


def trainable(control: PyTree) -> PyTree:
    """Which leaves of a control an optimiser may change: all floating-point arrays, except the
    `constants` of an `AbstractControl`, such as times and bounds."""

    def own(node):
        if not _is_own(node):
            return eqx.is_inexact_array(node)
        mask = node
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            fixed = field.name in node.constants
            inner = jax.tree.map(lambda _: False, value) if fixed else trainable(value)
            mask = eqx.tree_at(lambda x: getattr(x, field.name), mask, inner)  # noqa: B023
        return mask

    return jax.tree.map(own, control, is_leaf=_is_own)


def place(t0, dt, t, intervals):
    """The interval that contains t, and the share of it that has passed, from 0 to 1."""
    steps = (t - t0) / dt
    k = jnp.clip(jnp.floor(steps + _ON_GRID), 0, intervals - 1)
    return k.astype(int), jnp.clip(steps - k, 0.0, 1.0)


def with_strong_types(problem: Problem) -> Problem:
    """The problem with Python numbers, and arrays made of them, as arrays of its dtype. The user
    may have put some in, and they would be compiled again."""
    return with_dtype(problem, problem.state.q.dtype)


def as_control(problem: Problem, guess: Any, name: str = "guess") -> Control:
    """Turn the user's guess (`None`, an array or a callable) into a callable.

    **Raises:** `ValueError` for the wrong shape."""
    dtype = problem.state.q.dtype
    check_no_nan(**{name: guess})
    if callable(guess):
        return with_dtype(guess, dtype)
    what = f"`{name}`, a callable (t, q, v) -> u or an array,"
    values = finite(what, 0.0 if guess is None else guess, dtype, shape=None)
    if guess is None:
        values = np.zeros(problem.nu, dtype)
    shapes = (problem.nu,), (problem.steps, problem.nu)
    if values.shape not in shapes:
        raise ValueError(
            f"Argument `{name}` must be a callable (t, q, v) -> u, or have shape {shapes[1]} or "
            f"{shapes[0]}, but has shape {values.shape}."
        )
    return table(problem, broadcast(values, shapes[1]))


def table(problem: Problem, u: Array) -> PiecewiseConstant:
    """The table of u on the grid of the problem."""
    return PiecewiseConstant(problem.state.t, problem.dt, u)
