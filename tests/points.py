"""The equations of mechanisms at given states, solved by NumPy."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd


@eqx.filter_jit
def equations(mechanism, q, v, u=None):
    """M, f and the rows: phi, J, gamma."""
    control = None if u is None else lambda t, q, v: u
    here = mbd.evaluate(mechanism, control, jnp.zeros(()), q, v)
    return here.M, here.f, here.rows.phi, here.rows.J, here.rows.gamma


@eqx.filter_jit
def equations_of_each(mechanism, q, v, u):
    """At several states."""
    return jax.vmap(functools.partial(equations.__wrapped__, mechanism))(q, v, u)


def solved(M, f, phi, J, gamma):
    """v' and the least multipliers: M v' = f + J^T lam, J v' = gamma. Also of several states."""
    if np.ndim(f) == 2:
        return tuple(map(np.stack, zip(*map(solved, M, f, phi, J, gamma), strict=True)))
    J, n = np.asarray(J), len(f)
    matrix = np.block([[M, -J.T], [J, np.zeros((len(J), len(J)))]])
    found = np.linalg.lstsq(matrix, np.concatenate([f, gamma]), rcond=1e-12)[0]
    return found[:n], found[n:]


def motion(mechanism, q, v, u=None):
    return solved(*equations(mechanism, q, v, u))
