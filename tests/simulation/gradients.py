"""What the tests of gradients share: a loss of a simulation, and checks of its derivatives."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import jaxmbd as mbd


def loss_of(fixed, **options):
    """Of (system, enforcement, projection, control, q, v): a number of order 1 in which each
    coordinate, velocity and multiplier at the end has its own weight."""

    def loss(tree):
        system, enforcement, projection, control, q, v = eqx.combine(tree, fixed)
        sol = mbd.simulate(
            system,
            enforcement,
            mbd.State(0.0, q, v),
            control=control,
            projection=projection,
            start_tolerance=jnp.inf,  # the differences leave the constraints on purpose
            **options,
        )
        ends = jnp.concatenate([sol.q[-1], sol.v[-1], 0.1 * sol.multipliers[-1]])
        return jnp.cos(1.0 + jnp.arange(ends.size, dtype=ends.dtype)) @ ends

    return loss


def check(case, method, *, modes=("reverse", "forward"), rtol=1e-6, **options):
    """All derivatives of a method on a case agree."""
    control = options.pop("control", case.control)
    state = case.state
    # Gains of 0 stand at the border of what is allowed: the differences would cross it.
    enforcement = jax.tree.map(
        lambda x: jnp.where(x == 0, 0.01, x) if eqx.is_inexact_array(x) else x, method.enforcement
    )
    tree = (case.system, enforcement, method.projection, control, state.q, state.v)
    tree, fixed = eqx.partition(tree, eqx.is_inexact_array)
    # A start that is off the constraints by more crosses the border where the feedback of
    # `PassiveDeadBeat` begins to be limited.
    passive = isinstance(getattr(enforcement, "stabilisation", None), mbd.PassiveDeadBeat)
    step, loss = 1e-4 if passive else 1e-3, loss_of(fixed, **options)
    value, gradients, differences = h.derivatives(loss, tree, step=step, modes=modes)
    largest = jnp.max(jnp.abs(differences))
    assert jnp.isfinite(value)
    assert largest > 1e-2  # something depends on something
    for gradient in gradients.values():
        # A component of 1e-3 of the largest is still checked to 1e-6 of itself.
        np.testing.assert_allclose(gradient, differences, rtol=rtol, atol=1e-9 * largest)
    if len(modes) == 2:
        reverse, forward = gradients.values()
        # The matrix of the augmented Lagrangian has a condition number of 5e3.
        rounding = 1e-11 if isinstance(method.enforcement, mbd.AugmentedLagrangian) else 1e-12
        np.testing.assert_allclose(reverse, forward, rtol=rounding, atol=rounding * largest)
    return ravel_pytree(tree)[1](gradients[modes[0]])


EULER = diffrax.Euler()  # the scheme is not what most tests are about, and it compiles fast


def options_of(method, **options):
    return {"dt": 0.01, "num_steps": 30, "scheme": method.scheme(EULER), **options}


def complex_step(fn, x):
    """Exact derivatives of an analytic NumPy function."""
    return np.array([np.imag(fn(x + 1e-30j * e)) / 1e-30 for e in np.eye(len(x))])


def both_modes(fn, x):
    """Gradients in reverse and forward mode from one compilation."""
    modes = jax.jit(lambda x: (jax.jacrev(fn)(x), jax.jacfwd(fn)(x)))
    return modes(jnp.asarray(x))


def check_scalar(fn, tree):
    """Derivatives of the scalar `fn(tree)` in both modes are its differences."""
    value, gradients, differences = h.derivatives(fn, tree)
    largest = np.max(np.abs(differences))
    assert np.isfinite(value) and largest > 1e-2
    for gradient in gradients.values():
        np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-8 * largest)
