"""Systems and sensors for filters, and truths drawn as a filter expects them."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import jaxmbd as mbd
from jaxmbd._equations import equations
from jaxmbd.estimate.gaussian import factor
from jaxmbd.estimate.steps import moved, predicted, readings, sample_at, step_noise

DAMPING = "forces[damper].damping"


def four_bar():
    """A closed loop in space with hinges about y, 20 rows of rank 17, with a damper."""
    points = np.array([(0.0, 0, 0), (0.3, 0, 0.4), (1.2, 0, 0.5), (1.0, 0, 0)])
    inertia = mbd.Inertia.box(size=[0.5, 0.05, 0.05], mass=1.0)
    bodies = [
        mbd.Body(f"bar {i}", inertia, position=place)
        for i, place in enumerate((points[1:] + points[:-1]) / 2)
    ]
    ends, axis = ["ground", *bodies, "ground"], [0.0, 1.0, 0.0]
    hinges = [
        mbd.Revolute(f"hinge {i}", ends[i], ends[i + 1], point=points[i], axis=axis)
        for i in range(4)
    ]
    place = dict(point=points[0], axis=axis)
    damper = mbd.TorsionSpring(
        "damper", "ground", bodies[0], **place, stiffness=np.array(0.0), damping=np.array(0.4)
    )
    return mbd.Mechanism(bodies, hinges, forces=[damper])


def drawn(filter, belief, key, C=None):
    """A belief whose mean is drawn from one, or at a deviation with the covariance C."""
    L = factor(belief.P if C is None else C).L
    xi = L @ jr.normal(key, (L.shape[0],), L.dtype)
    return moved(filter, belief, xi, belief.P)[0]


def truth(filter, start, key, steps):
    """A motion that begins at `start`, with process noise, and its readings: the means as beliefs
    and `(steps, m)`."""
    h = jnp.asarray(filter.dt, start.q.dtype)
    # Without a spread, a filter of any rule moves the mean as the system moves.
    start = start.replace(start.point, P=jnp.zeros_like(start.P))

    def one(before, key):
        later = predicted(filter, before, h, None).belief
        sample = sample_at(filter, later.t, later.point, later.angles, None)
        of_motion, of_reading = jr.split(key)
        later = drawn(filter, later, of_motion, step_noise(filter, later.chart, sample, h))
        parts = readings(filter, later.t, later.point, later.angles, None)
        given = zip(filter.sigma, parts, strict=True)
        sigma = jnp.concatenate([jnp.broadcast_to(x, y.shape) for x, y in given])
        y = jnp.concatenate(parts)
        return later, (later, y + sigma * jr.normal(of_reading, y.shape, y.dtype))

    return jax.lax.scan(one, start, jr.split(key, steps))[1]


def nees(filter, belief, true):
    """The normalised square of the error of a mean, and the largest |Phi| and |Phi'| there."""
    system = filter.system(belief)
    e = belief.chart.seen(system, true.point)
    W = factor(belief.P).W
    phi = equations(system).violation(belief.t, belief.q, belief.v)
    return jnp.sum((W @ e) ** 2), jnp.max(jnp.abs(jnp.concatenate(phi)), initial=0.0)
