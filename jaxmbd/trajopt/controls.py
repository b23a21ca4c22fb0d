"""Controls u(t, q, v): tables in time, and feedback along a motion."""

import abc
import dataclasses
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._concrete import is_concrete
from .._inputs import checked, number, positive, shown, unjudged
from .._system import AbstractSystem
from .._tangent_space import difference, displaced
from .._types import Control

# Times within this fraction of an interval of a grid point are that grid point.
_ON_GRID = 1e-6


class AbstractControl(eqx.Module):
    """A control that knows what it does during an interval of the grid of a `Problem`."""

    # Fields that no optimiser changes.
    constants: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def __call__(self, t: Any, q: Any, v: Any) -> Float[Array, " nu"]:
        """u(t, q, v), for `simulate(control=...)`."""

    @abc.abstractmethod
    def within(self, t: Any, q: Any, v: Any) -> Control:
        """The control during the interval that begins at (t, q, v)."""


@checked
class Held(AbstractControl):
    """u, whatever happens."""

    u: Annotated[Float[Array, "..."], unjudged]

    def __call__(self, t, q, v):
        del t, q, v
        return self.u

    def within(self, t, q, v):
        del t, q, v
        return self


@checked
class PiecewiseConstant(AbstractControl):
    """u = values[k] from t0 + k dt to t0 + (k + 1) dt; before the first and after the last interval
    the first and last value.

    The methods of this package hold each value through its interval exactly. In `simulate`, whose
    schemes ask for u at the end of a step as well, a step that ends where u jumps sees a part of
    the jump, an error of its step size times the jump: choose small steps there, or follow the
    grid of a `Problem` with `mbd.trajopt.perform`.

    **Arguments:**

    - `t0`: start [s]. `dt`: length of an interval [s]. `values`: shape `(n, nu)`.
    """

    constants: ClassVar[tuple[str, ...]] = ("t0", "dt")

    t0: Float[Array, "..."] = eqx.field(converter=jnp.asarray)
    dt: Annotated[Float[Array, "..."], positive] = eqx.field(converter=jnp.asarray)
    # After a search that failed they may be NaN; what uses them says so.
    values: Annotated[Float[Array, "*batch n nu"], unjudged] = eqx.field(converter=jnp.asarray)

    def __check_init__(self):
        _check_table(self.values, 1)

    def __call__(self, t, q, v):
        del q, v
        k, _ = place(self.t0, self.dt, t, self.values.shape[0])
        return self.values[k]

    def within(self, t, q, v):
        return Held(self(t, q, v))


@checked
class PiecewiseLinear(AbstractControl):
    """u through values[k] at t0 + k dt, along straight lines between; constant before and after.

    **Arguments:**

    - `t0`: start [s]. `dt`: length of an interval [s]. `values`: shape `(n + 1, nu)`.
    """

    constants: ClassVar[tuple[str, ...]] = ("t0", "dt")

    t0: Float[Array, "..."] = eqx.field(converter=jnp.asarray)
    dt: Annotated[Float[Array, "..."], positive] = eqx.field(converter=jnp.asarray)
    values: Annotated[Float[Array, "*batch points nu"], unjudged] = eqx.field(converter=jnp.asarray)

    def __check_init__(self):
        _check_table(self.values, 2)

    def __call__(self, t, q, v):
        del q, v
        k, s = place(self.t0, self.dt, t, self.values.shape[0] - 1)
        return (1 - s) * self.values[k] + s * self.values[k + 1]

    def within(self, t, q, v):
        del t, q, v
        return self


@checked
class Feedback(AbstractControl):
    r"""Linear feedback along a nominal motion,

    $$
    u = \mathrm{clip}\big(u_k + K_k\,(x \ominus x(t))\big), \qquad
    x \ominus \bar x = (q \ominus \bar q,\; v - \bar v),
    $$

    with the displacement from the nominal coordinates in `nv` numbers, so that rotations by
    quaternions are treated right. Between grid points the nominal motion is interpolated; u_k and
    K_k are held. On the grid of a `Problem` u is sampled at the start of each interval, as a
    digital controller does.

    **Arguments:**

    - `system`: whose coordinates these are. `t0`, `dt`: start and interval of the grid [s].
    - `q`, `v`: nominal motion, shapes `(n + 1, nq)`, `(n + 1, nv)`. `u`: controls `(n, nu)`.
    - `gains`: K, shape `(n, nu, 2 nv)`. `lower`, `upper`: bounds of u, shape `(nu,)`.
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

    def __call__(self, t, q, v):
        k, s = place(self.t0, self.dt, t, self.u.shape[0])
        here, there = (self.q[k], self.v[k]), (self.q[k + 1], self.v[k + 1])
        nominal = displaced(self.system, *here, s * difference(self.system, here, there))
        u = self.u[k] + self.gains[k] @ difference(self.system, nominal, (q, v))
        return jnp.clip(u, self.lower, self.upper)

    def within(self, t, q, v):
        return Held(self(t, q, v))


class _BetweenBounds(AbstractControl):
    """Another control, brought between bounds."""

    constants: ClassVar[tuple[str, ...]] = ("lower", "upper")

    control: Control
    lower: Annotated[Float[Array, "..."], number] = eqx.field(converter=jnp.asarray)
    upper: Annotated[Float[Array, "..."], number] = eqx.field(converter=jnp.asarray)

    def __check_init__(self):
        lower, upper = self.lower, self.upper
        if is_concrete(lower) and is_concrete(upper) and not np.all(lower <= upper):
            raise ValueError(
                f"Argument `lower` of {type(self).__name__} must not exceed `upper`, but is "
                f"{shown(lower)}, and `upper` {shown(upper)}."
            )

    def within(self, t, q, v):
        return type(self)(within(self.control, t, q, v), self.lower, self.upper)


@checked
class Saturated(_BetweenBounds):
    """Any control, cut off at bounds.

    **Arguments:**

    - `control`: a callable (t, q, v) -> u. `lower`, `upper`: scalars or of shape `(nu,)`.
    """

    def __call__(self, t, q, v):
        return jnp.clip(self.control(t, q, v), self.lower, self.upper)


@checked
class Squashed(_BetweenBounds):
    """Any control z, brought between bounds smoothly:

        u = c + d tanh((z - c) / d),         c = (lower + upper) / 2, d = (upper - lower) / 2,
        u = lower + log(1 + exp(z - lower))  where only the lower bound is finite,
        u = upper - log(1 + exp(upper - z))  where only the upper one is,

    and u = z where neither is. It is about z in the middle of two bounds, and a few units of u away
    from a single one. Where the bounds are equal, u is held there whatever z is.

    **Arguments:**

    - `control`: a callable (t, q, v) -> z. `lower`, `upper`: scalars or of shape `(nu,)`.
    """

    def __call__(self, t, q, v):
        z = self.control(t, q, v)
        two, middle, half = self._scales()
        held = half == 0
        # The limit of tanh where the bounds meet: the bound that u is held at depends on its side.
        share = jnp.where(held, 1.0, (z - middle) / jnp.where(held, 1.0, half))
        share = jnp.where(held, jnp.sign(z - middle), jnp.tanh(share))
        above, lower, below, upper = self._sides()
        one = jnp.where(above, lower + jax.nn.softplus(z - lower), z)
        one = jnp.where(below, upper - jax.nn.softplus(upper - z), one)
        return jnp.where(two, middle + half * share, one)

    def inverse(self, u: Array, inside: float) -> Array:
        """z of u, for u brought into `inside` of the way to two bounds, and 1 - `inside` away from
        a single one."""
        two, middle, half = self._scales()
        share = jnp.clip((u - middle) / jnp.where(half == 0, 1.0, half), -inside, inside)
        above, lower, below, upper = self._sides()

        def away(distance):
            distance = jnp.maximum(distance, 1 - inside)
            return distance + jnp.log1p(-jnp.exp(-distance))  # log(exp(distance) - 1)

        one = jnp.where(above, lower + away(u - lower), u)
        one = jnp.where(below, upper - away(upper - u), one)
        return jnp.where(two, middle + half * jnp.arctanh(share), one)

    def _scales(self):
        """Where both bounds are finite, their middle and half their distance."""
        two = jnp.isfinite(self.lower) & jnp.isfinite(self.upper)
        lower, upper = jnp.where(two, self.lower, -1.0), jnp.where(two, self.upper, 1.0)
        return two, (lower + upper) / 2, (upper - lower) / 2

    def _sides(self):
        """Which bounds are the only finite one, with a number in place of the others."""
        from_below, from_above = jnp.isfinite(self.lower), jnp.isfinite(self.upper)
        above, below = from_below & ~from_above, from_above & ~from_below
        return above, jnp.where(above, self.lower, 0.0), below, jnp.where(below, self.upper, 0.0)


@checked
class Sampled(AbstractControl):
    """Any control as a digital controller applies it: taken at the start of each interval of the
    grid and held through it. In `simulate`, which knows no such grid, it acts continuously.

    **Arguments:**

    - `control`: a callable (t, q, v) -> u.
    """

    control: Control

    def __call__(self, t, q, v):
        return self.control(t, q, v)

    def within(self, t, q, v):
        return Held(self(t, q, v))


def within(control: Control, t: Any, q: Any, v: Any) -> Control:
    """The control during the interval that begins at (t, q, v): any callable but those of this
    file acts continuously."""
    return control.within(t, q, v) if isinstance(control, AbstractControl) else control


def trainable(control: Any) -> Any:
    """Which leaves of a control an optimiser may change: all floating-point arrays, but not the
    times and bounds of tables and of other controls of this file."""

    def own(node):
        if not isinstance(node, AbstractControl):
            return eqx.is_inexact_array(node)
        mask = node
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            fixed = field.name in node.constants
            inner = jax.tree.map(lambda _: False, value) if fixed else trainable(value)
            mask = eqx.tree_at(lambda x: getattr(x, field.name), mask, inner)  # noqa: B023
        return mask

    return jax.tree.map(own, control, is_leaf=lambda x: isinstance(x, AbstractControl))


def _check_table(values, least):
    if values.ndim < 2 or values.shape[-2] < least:
        raise ValueError(
            f"Argument `values` must have shape (n, nu) with n from {least}, but has "
            f"{values.shape}."
        )


def place(t0, dt, t, intervals):
    """The interval of t, and how far into it: 0 to 1."""
    steps = (t - t0) / dt
    k = jnp.clip(jnp.floor(steps + _ON_GRID), 0, intervals - 1)
    return k.astype(int), jnp.clip(steps - k, 0.0, 1.0)
