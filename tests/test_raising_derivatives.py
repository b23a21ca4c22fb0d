"""Derivatives of what failed: none is finite without an error, however the transformations are
nested, and that of what succeeded is right."""

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

AWAY = "violates the constraints"
PUSHED = mbd.State(0.0, [0.9, 0.0], [0.0, 0.3])
Z = [0.0, 0.0, 1.0]


class Rod(h.Pendulum):
    """Of this module alone, so that nothing of it is compiled before."""


def reach(length, **options):
    """The place along x after the swing: its derivative needs no value of the state. The start
    fits only a rod of 0.9 m."""
    options = {"dt": 0.01, "num_steps": 2, **options}
    rod = Rod(length=length)
    return mbd.simulate(rod, mbd.VelocityImpulse(), PUSHED, **options).q[-1, 0]


def twice(fn):
    """The sum of fn(x) and fn(x), as a loop."""
    zero = jnp.zeros(())
    return lambda x: jax.lax.scan(lambda sum, _: (sum + fn(x), None), zero, None, length=2)[0]


def pair(fn):
    """fn beside a sample that succeeds."""
    return lambda x: jax.vmap(fn)(jnp.stack([jnp.full((), 0.9), x]))[1]


def tangent(fn):
    return lambda x: jax.jvp(fn, (x,), (jnp.ones_like(x),))[1]


# How the derivative by x is found, and how often it is counted.
NESTINGS = {
    "grad": (jax.grad(reach), 1),
    "jit of grad": (jax.jit(jax.grad(reach)), 1),
    "jit of jvp": (jax.jit(tangent(reach)), 1),
    "jit of jacfwd": (jax.jit(jax.jacfwd(reach)), 1),
    "jit of jacrev": (jax.jit(jax.jacrev(reach)), 1),
    "jit of lanes": (jax.jit(mbd.jacfwd(reach)), 1),
    "lanes": (mbd.jacfwd(reach), 1),
    "jit of value_and_grad": (jax.jit(lambda x: jax.value_and_grad(reach)(x)[1]), 1),
    "grad of jit": (jax.grad(jax.jit(reach)), 1),
    "jit of grad of checkpoint": (jax.jit(jax.grad(jax.checkpoint(reach))), 1),
    "jit of grad of scan": (jax.jit(jax.grad(twice(reach))), 2),
    "jit of scan of grad": (jax.jit(twice(jax.grad(reach))), 2),
    "jit of vmap of grad": (jax.jit(pair(jax.grad(reach))), 1),
    "jit of grad of vmap": (jax.jit(jax.grad(pair(reach))), 1),
    "jit of vmap of jacfwd": (jax.jit(pair(jax.jacfwd(reach))), 1),
    "jit of grad, 0 times": (jax.jit(jax.grad(lambda x: x + 0.0 * reach(x))), 0),
}


@pytest.fixture(scope="module")
def slope():
    """The central difference, of simulations that start beside the circle but do not fail."""

    def difference(x, step):
        near = lambda x: reach(x, start_tolerance=jnp.inf)  # noqa: E731
        return (near(x + step) - near(x - step)) / (2 * step)

    return float(jax.jit(difference)(jnp.array(0.9), jnp.array(1e-5)))


@pytest.mark.parametrize("name", NESTINGS)
def test_nesting(name, slope):
    derivative, times = NESTINGS[name]
    expected = times * slope if times else 1.0
    np.testing.assert_allclose(derivative(jnp.array(0.9)), expected, rtol=1e-8)
    with pytest.raises(Exception, match=AWAY):
        jax.block_until_ready(derivative(jnp.array(0.8)))


@pytest.mark.parametrize("order", [jax.jacfwd, jax.jacrev], ids=["f", "r"])
@pytest.mark.parametrize("inner", [jax.jacfwd, jax.jacrev], ids=["f", "r"])
def test_second_derivatives(inner, order):
    second = jax.jit(order(inner(reach)))
    with pytest.raises(Exception, match=AWAY):
        jax.block_until_ready(second(jnp.array(0.8)))


def stepped(length):
    stepper = mbd.Stepper(Rod(length=length), mbd.VelocityImpulse())
    state = stepper.init(PUSHED)
    return mbd.raise_if_failed(stepper.step(state, 0.01)).q


def rolled(rate):
    """A leaning disc that cannot slip sideways."""
    lean, r = 0.6, 0.2
    disc = mbd.Body(
        "disc",
        h.BOX,
        position=[0, 0, r * np.sin(lean)],
        orientation=[np.cos(lean / 2), 0, np.sin(lean / 2), 0],
    )
    joint = mbd.RollingDisc(
        "roll",
        "ground",
        disc,
        radius=r,
        axes=(Z, [np.sin(lean), 0, np.cos(lean)]),
        points=([0, 0, 0], [0, 0, r * np.sin(lean)]),
    )
    rates = {"roll": jnp.stack([rate, jnp.full((), 0.5)])}
    return mbd.place_bodies(mbd.Mechanism([disc], [joint]), {}, rates).v


def closed(span):
    """A rod of 1 m between two ball joints `span` apart."""
    rung = mbd.Body("rung", h.BOX, position=[0.1, 0.2, 0])
    far = jnp.stack([span, jnp.zeros(()), jnp.zeros(())])
    joints = [
        mbd.Spherical("left", "ground", rung, points=([0, 0, 0], [-0.4, 0.2, 0])),
        mbd.Spherical("right", "ground", rung, points=(far, [0.6, 0.2, 0])),
    ]
    return mbd.close_joints(mbd.Mechanism([rung], joints)).q


def linear_motion(length):
    steps = diffrax.SaveAt(t0=True, steps=1)
    options = dict(dt=0.01, num_steps=3, saveat=steps)
    motion = mbd.simulate(Rod(length=0.9), mbd.VelocityImpulse(), PUSHED, **options)
    return mbd.analysis.linearise_along(Rod(length=length), motion, jnp.zeros(2), size=2).A


analysis = mbd.analysis
FUNCTIONS = {
    "assemble": (lambda x: mbd.assemble(Rod(length=x), [0.85, 0.1], fixed=[0]).q, 0.5, "satisfied"),
    "close_joints": (closed, 1.2, "cannot be closed"),
    "place_bodies": (rolled, 0.1, "cannot move at the rates"),
    "step": (stepped, 0.8, AWAY),
    "simulate, adaptive": (
        lambda x: mbd.simulate(
            Rod(length=x),
            mbd.UdwadiaKalaba(),
            PUSHED,
            t1=0.02,
            dt=0.01,
            adjoint=diffrax.ForwardMode(),
            stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
        ).q,
        0.8,
        AWAY,
    ),
    "equilibrium": (
        lambda x: analysis.equilibrium(Rod(length=x), PUSHED, max_iterations=1).q,
        0.9,
        "No equilibrium",
    ),
    "kinematics": (
        lambda x: analysis.kinematics(Rod(length=x), PUSHED, lambda q: q[0], [0.7, 0.9]).v,
        0.8,
        "satisfied",
    ),
    "dead_point": (
        lambda x: analysis.dead_point(
            Rod(length=x), PUSHED, lambda q: q[0] + q[1], max_iterations=1
        ).value,
        0.9,
        "no dead point",
    ),
    "limit_point": (
        lambda x: analysis.limit_point(
            lambda load: Rod(length=x, gravity=load), PUSHED, 1.0, max_iterations=1
        ).parameter,
        0.9,
        "no limit point",
    ),
    "accelerations": (lambda x: analysis.accelerations(Rod(length=x), PUSHED), 0.8, AWAY),
    "inverse_dynamics": (
        lambda x: analysis.inverse_dynamics(
            Rod(length=x), PUSHED, jnp.zeros(2), jnp.zeros(2)
        ).u,
        0.8,
        AWAY,
    ),
    "linearise": (lambda x: analysis.linearise(Rod(length=x), PUSHED, size=2).A, 0.8, AWAY),
    "linearise_along": (linear_motion, 0.8, AWAY),
    "tangent_growth": (
        lambda x: analysis.tangent_growth(
            Rod(length=x), mbd.VelocityImpulse(), PUSHED, dt=0.01, num_steps=2
        ).log_growth,
        0.8,
        AWAY,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    """Each that raises by itself also raises where only a derivative of what it returns is used."""
    fn, x, message = FUNCTIONS[name]
    with pytest.raises(Exception, match=message):
        jax.block_until_ready(jax.jit(tangent(fn))(jnp.array(x)))
