"""Small problems of optimal control, and their solution by transcription."""

import equinox as eqx
import jax.numpy as jnp
from helpers import parameter
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import trajopt as T

HERMITE, TRAPEZOIDAL, SHOOTING = T.HermiteSimpson(), T.Trapezoidal(), T.DirectMultipleShooting()


class Effort(eqx.Module):
    """l = |u|^2."""

    def __call__(self, t, q, v, u):
        return u @ u


class Reach(eqx.Module):
    """A state."""

    q: Array
    v: Array

    def __call__(self, t, q, v):
        return jnp.concatenate([q - self.q, v - self.v])


class Time(eqx.Module):
    def __call__(self, t, q, v, u):
        return jnp.ones((), q.dtype)


class Mass(mbd.AbstractSystem):
    """A mass on a line, pushed by u."""

    mass: Array = parameter(1.0)

    def mass_matrix(self, q):
        return self.mass * jnp.eye(1)

    def force(self, t, q, v, u):
        return u


def rest_to_rest(distance=1.0, duration=1.0, steps=6, mass=1.0, **options):
    options = {"running_cost": Effort(), **options}
    return T.Problem(
        Mass(mass),
        mbd.State(0.0, jnp.zeros(1), jnp.zeros(1)),
        duration,
        steps,
        nu=1,
        final=Reach(jnp.array([distance]), jnp.zeros(1)),
        **options,
    )


def solve(problem, method=HERMITE, guess=None, **options):
    return T.transcription(problem, guess, method, progress=False, **options)


def converged(plan):
    return plan.status == T.STATUS.converged
