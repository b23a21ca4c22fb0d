"""Derivatives in both modes beside central differences."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree


def derivatives(fn, tree, step=1e-3, modes=("reverse", "forward")):
    """(value, {mode: gradient}, differences) of the scalar `fn(tree)`, all scaled: derivatives with
    respect to x / max(|x|, 1), as flat vectors, from one compilation.

    The central differences of sixth order have an error of f'''''' step^6 / 140 and a rounding
    error of about 1e-16 |fn| / step.
    """
    flat, unravel = ravel_pytree(tree)
    scale = jnp.maximum(jnp.abs(flat), 1.0)

    def scaled(s):
        return fn(unravel(flat + scale * s))

    weights = np.array([3 / 4, -3 / 20, 1 / 60])
    gradients = {"reverse": jax.grad, "forward": jax.jacfwd}

    def everything(zero):
        shifts = step * np.array([1.0, 2.0, 3.0, -1.0, -2.0, -3.0])
        points = shifts[:, None, None] * np.eye(flat.size) + zero[None, None]
        # The value is one more of the samples, which saves a program of its own.
        points = jnp.concatenate([points.reshape(-1, flat.size), zero[None]])
        values = jax.vmap(scaled)(points)
        shifted = values[:-1].reshape(6, flat.size)
        differences = weights @ (shifted[:3] - shifted[3:]) / step
        return values[-1], {m: gradients[m](scaled)(zero) for m in modes}, differences

    return jax.jit(everything)(jnp.zeros_like(flat))
