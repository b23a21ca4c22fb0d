"""Derivatives in both modes beside central differences."""

import jax
import jax.numpy as jnp
import numpy as np

SHIFTS = np.array([1.0, 2.0, 3.0, -1.0, -2.0, -3.0])


def both_modes(fn, x):
    """The value of fn, its derivatives by x in forward and in reverse mode, for arrays of at most
    one axis. What is computed on the way serves both modes. A loop over the columns is a smaller
    program than a batch of them, and is traced in half the time."""
    value, along = jax.linearize(fn, x)
    back = jax.linear_transpose(along, x)
    units, of_value = (jnp.eye(y.size).reshape(y.size, *y.shape) for y in (x, value))
    forward = jnp.moveaxis(jax.lax.map(along, units), 0, -1).reshape(*value.shape, *x.shape)
    reverse = jax.lax.map(lambda w: back(w)[0], of_value).reshape(*value.shape, *x.shape)
    return value, forward, reverse


def with_slopes(fn, x):
    """`fn(x)` and its derivatives by each number of a vector x, in forward mode and one by one: one
    program, small enough to serve for differences too."""
    values, slopes = jax.lax.map(lambda d: jax.jvp(fn, (x,), (d,)), jnp.eye(x.size))
    return jax.tree.map(lambda y: y[0], values), slopes


def derivatives(fn, tree, step=1e-3, modes=("reverse", "forward")):
    """(value, {mode: gradient}, differences) of the scalar `fn(tree)`, all scaled: derivatives with
    respect to x / max(|x|, 1), as flat vectors, from one program.

    The central differences of sixth order have an error of f'''''' step^6 / 140 and a rounding
    error of about 1e-16 |fn| / step.
    """
    leaves, structure = jax.tree.flatten(tree)
    leaves = [np.asarray(x) for x in leaves]
    flat, ends = np.concatenate([x.ravel() for x in leaves]), np.cumsum([x.size for x in leaves])
    scale = np.maximum(np.abs(flat), 1.0)

    def unravel(x):
        parts = zip(jnp.split(x, ends[:-1]), leaves, strict=True)
        return jax.tree.unflatten(structure, [part.reshape(leaf.shape) for part, leaf in parts])

    def scaled(s):
        return fn(unravel(flat + scale * s))

    @jax.jit
    def at(s, direction):
        """What is computed on the way serves both modes."""
        if modes == ("reverse",):
            value, gradient = jax.value_and_grad(scaled)(s)
            return value, {"reverse": gradient}, 0.0
        value, along = jax.linearize(scaled, s)
        if "reverse" in modes:
            (gradient,) = jax.linear_transpose(along, s)(jnp.ones_like(value))
        return value, {"reverse": gradient} if "reverse" in modes else {}, along(direction)

    zero, units = np.zeros_like(flat), np.eye(flat.size)
    value, gradients, _ = jax.device_get(at(zero, zero))
    if "forward" in modes:
        gradients["forward"] = np.array([at(zero, unit)[2] for unit in units])
    samples = np.array([[at(step * s * unit, zero)[0] for unit in units] for s in SHIFTS])
    weights = np.array([3 / 4, -3 / 20, 1 / 60])
    return value, gradients, weights @ (samples[:3] - samples[3:]) / step


def check_scalar(fn, tree, rtol=1e-6, atol=1e-8, between=1e-9, **options):
    """The derivatives of the scalar `fn(tree)` in both modes are its differences, and agree with
    each other to `between`. `atol`: a share of the largest."""
    value, gradients, differences = derivatives(fn, tree, **options)
    largest = np.max(np.abs(differences))
    assert np.isfinite(value) and largest > 1e-2
    for gradient in gradients.values():
        np.testing.assert_allclose(gradient, differences, rtol=rtol, atol=atol * largest)
    for gradient in gradients.values():
        first = next(iter(gradients.values()))
        np.testing.assert_allclose(gradient, first, rtol=between, atol=between * largest)
