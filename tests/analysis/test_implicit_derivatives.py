"""Derivatives of what is found by a search, by every kind of parameter, from starts off the
solution, in both modes against central differences. The kinematic map depends on the lengths, and
some functions close over parameters: no search may see tangents on either way."""

from collections.abc import Callable

import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import analysis
from jaxmbd._roots import root


class Linkage(mbd.AbstractSystem):
    """Bars in a vertical plane, one after the other from the origin, with a point mass at each end
    and a spring at the first; q are their angles, and v the speeds of each end relative to the
    other, q' = v / lengths. The last end is held at a point that `swing` moves in time. A
    torque u + t acts on the first bar. `axis`: the angle of the plane's vertical to gravity."""

    lengths: Array
    masses: Array
    stiffness: Array
    gravity: Array
    axis: Array
    base: Array
    swing: Callable[[Array], Array]

    def qdot(self, q, v):
        return v / self.lengths

    def along(self, q):
        """Unit vectors along the bars and across them."""
        c, s = jnp.cos(q), jnp.sin(q)
        return jnp.stack([c, s], axis=1), jnp.stack([-s, c], axis=1)

    @property
    def beyond(self):
        """For each pair of bars, the mass that moves with both."""
        total = jnp.cumsum(self.masses[::-1])[::-1]
        return jnp.minimum(total[:, None], total[None, :])

    def mass_matrix(self, q):
        _, n = self.along(q)
        return self.beyond * (n @ n.T)

    def force(self, t, q, v, u):
        e, n = self.along(q)
        down = self.gravity * jnp.stack([jnp.sin(self.axis), -jnp.cos(self.axis)])
        pull = (self.beyond * (n @ e.T)) @ (v**2 / self.lengths)
        torque = (u[0] + t - self.stiffness * (q[0] - 0.7)) / self.lengths[0]
        return (pull + jnp.diagonal(self.beyond) * (n @ down)).at[0].add(torque)

    def constraint(self, q, t):
        e, _ = self.along(q)
        return self.lengths @ e - self.base - self.swing(t)


VALUES = dict(
    length=np.array([0.5, 1.0, 0.8]),
    mass=np.array([1.0, 0.8, 0.6]),
    stiffness=3.0,
    gravity=9.81,
    axis=0.1,
    base=np.array([1.2, 0.1]),
    time=0.3,
    closed_over=0.4,
)


def linkage(p, size=0.4):
    """The system, whose `swing` closes over its `size`, and a start."""

    def swing(t):
        return size / 4 * jnp.stack([jnp.sin(t), jnp.cos(t)])

    values = [p[name] for name in ("length", "mass", "stiffness", "gravity", "axis", "base")]
    # Off the solutions and off the constraints.
    return Linkage(*values, swing), mbd.State(p["time"], [1.0, 0.3, -1.0], np.zeros(3))


def rest(p):
    """The control closes over a parameter."""
    system, start = linkage(p)
    control = lambda t, q, v: p["closed_over"] * jnp.cos(q[:1])  # noqa: E731
    found = analysis.equilibrium(system, start, control, throw=False)
    return found.report.result, found.q, found.report.multipliers


def limit_point(p):
    """The family closes over everything, and the drive over another parameter."""
    system, start = linkage(p)

    def family(load):
        return system, lambda t, q, v: load + p["closed_over"] * jnp.sin(q[:1])

    start = mbd.State(start.t, [-0.13, 1.24, -1.03], np.zeros(3))
    found = analysis.limit_point(family, start, 4.2, throw=False)
    return found.result, found.parameter, found.state.q


def assemble(p):
    """A function in the system closes over a parameter."""
    system, start = linkage(p, size=p["closed_over"])
    drift = p["closed_over"] * np.array([1.0, -1.0, 0.5])
    found = mbd.assemble(system, start.q, drift, start.t, throw=False)
    return found.report.result, found.q, found.v


def kinematics(p):
    """The drives close over a parameter."""
    system, start = linkage(p)
    drive = lambda q: q[0] + p["closed_over"]  # noqa: E731
    values = np.array([1.35, 1.5]) + p["mass"][0]
    found = analysis.kinematics(system, start, drive, values, throw=False)
    return found.result, found.q, found.v, found.a


def dead_point(p):
    system, start = linkage(p)
    drive = lambda q: q[2] + p["closed_over"] * q[0]  # noqa: E731
    found = analysis.dead_point(system, start, drive, throw=False)
    return found.result, found.value, found.state.q


def frequencies(p):
    """About a rest that depends on the parameters, as the null space of the rows does."""
    system, start = linkage(p, size=0.0)
    found = analysis.equilibrium(system, start, jnp.zeros(1), throw=False)
    model = analysis.linearise(system, found, jnp.zeros(1), size=2, throw=False)
    return model.result, analysis.modes(model).frequency[::2]


FUNCTIONS = [rest, limit_point, assemble, kinematics, frequencies, dead_point]


@pytest.mark.parametrize("fn", h.slow_unless(lambda fn: fn is dead_point, FUNCTIONS))
def test_derivatives_by_every_kind_of_parameter(fn):
    """All numbers that are found, in a sum with weights that let none cancel."""

    def scalar(p):
        result, *found = fn(p)
        flat = jax.flatten_util.ravel_pytree(found)[0]
        value = flat @ jnp.cos(jnp.arange(flat.size, dtype=flat.dtype))
        return jnp.where(jnp.all(result == mbd.RESULTS.successful), value, jnp.nan)

    value, slopes, differences = h.derivatives(scalar, VALUES)
    assert np.isfinite(value) and np.any(np.abs(differences) > 0.1)
    for mode, slope in slopes.items():
        np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-7, err_msg=mode)


def test_a_root_of_redundant_equations():
    """x = sqrt(a), twice, with two derivatives in both modes; none by the start."""

    def found(a, start):
        def residual(x, d):
            row = (x + d) ** 2 - a
            return jnp.concatenate([row, 2 * row])

        x, left = root(residual, start[None], jnp.add, 1, max_iterations=20)
        return x[0], left

    @jax.jit
    def values(a, start):
        of_start = jax.grad(lambda start: found(a, start)[0])(start)
        slope = jax.jacfwd(lambda a: found(a, start)[0])
        return *found(a, start), of_start, slope(a), jax.grad(slope)(a)

    x, left, *slopes = values(4.0, 1.5)
    np.testing.assert_allclose(x, 2.0, rtol=1e-15)
    assert float(left) < 1e-10
    np.testing.assert_allclose(slopes, [0, 1 / 4, -1 / 32], atol=1e-14)
