"""Closed loops whose rows are redundant, for up to 10^5 steps: the motions are those of their few
freedoms, and multipliers stay as large as reactions are."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import diffrax
import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import six_r_loop
import two_four_bars as two_four_bars_example
from helpers import slow_unless
from scipy.integrate import solve_ivp

import jaxmbd as mbd

GRAVITY = 9.81
MASS, MOMENT = 1.0, 0.05  # of every bar and slider
Z = [0.0, 0.0, 1.0]


# --- plane linkages ------------------------------------------------------------------------------


class Linkage(NamedTuple):
    """Bars in the plane of x and y, with y upwards, as functions of the freedoms s:

    - `shape`: places (centres and points, each (n, 2)) and angles of the bars.
    - `joints`: pairs of bodies by number, -1 for the ground, and the number of the point between
      them. A joint with the direction of a guide in place of a point is prismatic.
    """

    shape: Callable
    joints: tuple
    start: tuple[float, ...]
    rate: tuple[float, ...]
    freedoms: int
    redundant: int  # rows at the start


def direction(angle):
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def angle_of(a, b):
    return jnp.arctan2(b[1] - a[1], b[0] - a[0])


def third_corner(a, b, side_a, side_b):
    """Of a triangle on a and b, to the left of the way from a to b."""
    way = b - a
    square = way @ way
    along = (square + side_a**2 - side_b**2) / (2 * square)
    across = jnp.sqrt(side_a**2 / square - along**2)
    return a + along * way + across * jnp.stack([-way[1], way[0]])


def bars(*ends):
    """Centres and angles of bars between points."""
    centres = jnp.stack([(a + b) / 2 for a, b in ends])
    return centres, jnp.stack([angle_of(a, b) for a, b in ends])


def four_bar(s):
    a, d = jnp.array([0.0, 0.0]), jnp.array([1.0, 0.0])
    b = a + 0.3 * direction(s[0])
    c = third_corner(b, d, 0.9, 0.556)
    return *bars((a, b), (b, c), (c, d)), jnp.stack([a, b, c, d])


def slider_crank(s):
    a = jnp.array([0.0, 0.0])
    b = a + 0.3 * direction(s[0])
    c = jnp.stack([b[0] + jnp.sqrt(0.9**2 - b[1] ** 2), 0.0 * b[1]])
    centres, angles = bars((a, b), (b, c))
    centres, angles = jnp.concatenate([centres, c[None]]), jnp.append(angles, 0.0)
    return centres, angles, jnp.stack([a, b, c])


def five_bar(s):
    """A parallel robot: two arms, and two forearms that hold one point."""
    a, e = jnp.array([0.0, 0.0]), jnp.array([0.5, 0.0])
    b, d = a + 0.4 * direction(s[0]), e + 0.4 * direction(s[1])
    c = third_corner(d, b, 0.5, 0.5)
    return *bars((a, b), (b, c), (c, d), (d, e)), jnp.stack([a, b, c, d, e])


def two_four_bars(s):
    """Three cranks that two couplers keep parallel: in line they may leave that, and do not."""
    feet = [jnp.array([float(i), 0.0]) for i in range(3)]
    heads = [foot + direction(s[0]) for foot in feet]
    couplers = [(heads[0], heads[1]), (heads[1], heads[2])]
    return *bars(*zip(feet, heads), *couplers), jnp.stack([*feet, *heads])


LINKAGES = {
    "four_bar": Linkage(
        four_bar, ((-1, 0, 0), (0, 1, 1), (1, 2, 2), (2, -1, 3)), (1.0,), (6.0,), 1, 3
    ),
    "slider_crank": Linkage(
        slider_crank, ((-1, 0, 0), (0, 1, 1), (1, 2, 2), (-1, 2, "guide")), (1.0,), (6.0,), 1, 3
    ),
    "five_bar": Linkage(
        five_bar,
        ((-1, 0, 0), (0, 1, 1), (1, 2, 2), (2, 3, 3), (3, -1, 4)),
        (-1.5, -1.2),
        (0.0, 0.0),
        2,
        3,
    ),
    "two_four_bars": Linkage(
        two_four_bars,
        ((-1, 0, 0), (-1, 1, 1), (-1, 2, 2), (0, 3, 3), (1, 3, 4), (1, 4, 4), (2, 4, 5)),
        (np.pi / 2,),
        (-1.0,),
        1,
        6,
    ),
}


def from_bodies(linkage: Linkage) -> mbd.Mechanism:
    """With hinges about z: a row of each across the plane, and two that keep the axis."""
    s, rate = jnp.array(linkage.start), jnp.array(linkage.rate)
    (centres, _, points), (velocities, turning, _) = jax.jvp(linkage.shape, (s,), (rate,))
    inertia = mbd.Inertia(MASS, [MOMENT] * 3)
    bodies = [
        mbd.Body(
            f"body {i}",
            inertia,
            position=[*centres[i], 0.0],
            velocity=[*velocities[i], 0.0],
            angular_velocity=[0.0, 0.0, turning[i]],
        )
        for i in range(len(centres))
    ]
    joints = []
    for k, (i, j, place) in enumerate(linkage.joints):
        pair = [bodies[x] if x >= 0 else "ground" for x in (i, j)]
        if place == "guide":
            at, kind, axis = centres[j], mbd.Prismatic, [1.0, 0.0, 0.0]
        else:
            at, kind, axis = points[place], mbd.Revolute, Z
        joints.append(kind(f"joint {k}", *pair, point=[*at, 0.0], axis=axis))
    return mbd.Mechanism(bodies, joints, gravity=[0, -GRAVITY, 0])


def exact_centres(linkage: Linkage, t):
    """Of the bodies at times t, (ns, nb, 2), from Lagrange's equations in s; error about 1e-10."""

    def placed(s):
        centres, angles, _ = linkage.shape(s)
        return jnp.append(MASS**0.5 * centres.ravel(), MOMENT**0.5 * angles)

    def lagrangian(s, rate):
        _, velocity = jax.jvp(placed, (s,), (rate,))
        return velocity @ velocity / 2 - MASS * GRAVITY * jnp.sum(linkage.shape(s)[0][:, 1])

    @jax.jit
    def rates(y):
        s, rate = jnp.split(y, 2)
        momentum = jax.grad(lagrangian, 1)
        mass = jax.jacfwd(momentum, 1)(s, rate)
        _, change = jax.jvp(lambda s: momentum(s, rate), (s,), (rate,))
        acceleration = jnp.linalg.solve(mass, jax.grad(lagrangian)(s, rate) - change)
        return jnp.concatenate([rate, acceleration])

    start = np.concatenate([linkage.start, linkage.rate])
    motion = solve_ivp(
        lambda t, y: rates(y), (0, t[-1]), start, "DOP853", t, rtol=1e-12, atol=1e-12
    )
    s = motion.y[: len(linkage.start)].T
    return np.asarray(jax.jit(jax.vmap(linkage.shape))(s)[0])


# --- long motions ---------------------------------------------------------------------------------


def ring_places(mechanism, q):
    hinges = [mechanism.joint_coordinates(q, f"hinge {i}")[:, 0] for i in (1, 2)]
    return np.unwrap(np.stack(hinges)).T


@functools.cache
def loop(name: str) -> tuple[mbd.Mechanism, Callable, Callable]:
    """A mechanism; what is compared, of saved coordinates; and its truth at times t."""
    if name == "ring":
        return six_r_loop.six_r_loop(), ring_places, lambda t: six_r_loop.exact_motion(t).T
    linkage = LINKAGES[name]

    def centres(mechanism, q):
        places = [mechanism.pose(q, body.name).position for body in mechanism.bodies]
        return np.stack(places, axis=1)[..., :2]

    return from_bodies(linkage), centres, functools.partial(exact_centres, linkage)


@pytest.mark.parametrize(
    "name", slow_unless(lambda name: name in ("five_bar", "ring"), [*LINKAGES, "ring"])
)
def test_rows_are_redundant(name):
    found = mbd.reports.mobility(loop(name)[0])
    freedoms, redundant = (1, 1) if name == "ring" else LINKAGES[name][4:]
    assert (found.freedoms, found.rows - found.rank) == (freedoms, redundant)


# Errors of the phase grow with time, since the energy is off by that of the scheme. So positions
# are compared for the first tenth, and the energy to the end. Through the pose in line, `Proximal`
# softens rows.
PSEUDOINVERSE, PROXIMAL, SPARSE = mbd.Pseudoinverse(), mbd.Proximal(), mbd.BlockSparse()
# The solver that loops are given by default in a plane, through a pose in line, and in space, and
# `Proximal` on those that are more than one loop in a plane. `Pseudoinverse` leads bars through the
# pose in line in mechanism/test_mechanism_references.py.
LONG_RUNS = [
    ("four_bar", SPARSE, 100_000),
    ("two_four_bars", SPARSE, 20_000),
    ("two_four_bars", PROXIMAL, 20_000),
    ("ring", SPARSE, 100_000),
    ("ring", PROXIMAL, 20_000),
]
IN_SINGLE_PRECISION = [
    ("two_four_bars", SPARSE),
    ("ring", SPARSE),
    ("four_bar", PROXIMAL),
    ("four_bar", PSEUDOINVERSE),
]


def ids(x):
    return type(x).__name__ if isinstance(x, mbd.solvers.AbstractConstraintSolver) else str(x)


def long_run(mechanism, method, steps, dt=1e-3, saved=500):
    """A motion of so many steps and saved states."""

    def run():
        return mbd.simulate(
            mechanism,
            method,
            mechanism.state(),
            dt=dt,
            num_steps=steps,
            saveat=diffrax.SaveAt(t0=True, steps=steps // saved),
            throw=False,
        )

    return jax.jit(run, compiler_options=helpers.OPTIMISED)()


@pytest.mark.slow
@pytest.mark.parametrize("name, solver, steps", LONG_RUNS, ids=ids)
def test_redundant_loops_for_a_long_time(name, solver, steps):
    mechanism, places, truth = loop(name)
    softened = name == "two_four_bars"
    sol = long_run(mechanism, mbd.UdwadiaKalaba(solver), steps)
    assert sol.result == mbd.RESULTS.successful
    early = slice(0, 51)
    error = places(mechanism, sol.q[early]) - truth(np.asarray(sol.t[early]))
    assert np.max(np.abs(error)) < (1e-4 if softened else 1e-7)
    energy = jax.jit(jax.vmap(lambda q, v: mbd.reports.total_energy(mechanism, q, v)))(sol.q, sol.v)
    assert np.max(np.abs(energy - energy[0])) < (1e-4 if softened else 1e-6)  # J
    assert np.max(sol.phi_norm) < 1e-11
    assert np.max(np.abs(sol.multipliers)) < 200  # N; of a few bars of 1 kg


@pytest.mark.slow
def test_independent_coordinates_for_a_long_time():
    mechanism, places, truth = loop("four_bar")
    sol = long_run(mechanism, mbd.IndependentCoordinates(), 20_000)
    assert sol.result == mbd.RESULTS.successful
    early = slice(0, 51)
    error = places(mechanism, sol.q[early]) - truth(np.asarray(sol.t[early]))
    assert np.max(np.abs(error)) < 1e-7
    energy = jax.jit(jax.vmap(lambda q, v: mbd.reports.total_energy(mechanism, q, v)))(sol.q, sol.v)
    assert np.max(np.abs(energy - energy[0])) < 1e-6  # J
    assert np.max(sol.phi_norm) < 1e-14 and np.max(sol.phidot_norm) < 1e-13


@pytest.mark.slow
@pytest.mark.parametrize(
    "independent, typical", [(mbd.NullSpace(), 1e-8), (mbd.CoordinatePartitioning(), 5e-6)]
)
def test_independent_coordinates_through_singular_poses(independent, typical):
    """In line, the cranks have two more dependent rows, and K is infinite in two directions. Within
    a step of this pose a violation is left, which the next steps remove. How much rounding errors
    are amplified there depends on how near a step comes to it: nine step sizes differ by up to
    10^5, and their median tells the method."""
    system = two_four_bars_example.TwoFourBars()

    @jax.jit
    def run(dt):
        return mbd.simulate(
            system,
            mbd.IndependentCoordinates(independent=independent),
            two_four_bars_example.exact_start(),
            dt=dt,
            num_steps=4000,
            saveat=diffrax.SaveAt(steps=1),
            throw=False,
        )

    errors = []
    for dt in 1e-3 * np.linspace(0.992, 1.008, 9):
        sol = run(dt)
        assert sol.result == mbd.RESULTS.successful
        assert np.max(sol.phi_norm) < 1e-8
        assert np.sum(np.asarray(sol.phi_norm) > 1e-13) < 20
        angle = two_four_bars_example.exact_motion(np.asarray(sol.t))
        errors.append(np.max(np.abs(sol.q[:, 0] - np.sin(angle))))
    assert np.median(errors) < typical


@pytest.mark.slow
@pytest.mark.parametrize("name, solver", IN_SINGLE_PRECISION, ids=ids)
def test_redundant_loops_in_single_precision(name, solver):
    mechanism, places, truth = loop(name)
    mechanism = jax.tree.map(
        lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x, mechanism
    )
    sol = long_run(mechanism, mbd.UdwadiaKalaba(solver), 10_000, dt=2e-3, saved=100)
    assert sol.result == mbd.RESULTS.successful
    assert sol.q.dtype == np.float32
    found = places(mechanism, sol.q[:11])
    assert np.max(np.abs(found - truth(np.asarray(sol.t[:11], float)))) < 1e-3
    assert np.max(sol.phi_norm) < 2e-6
    assert np.max(np.abs(sol.multipliers)) < 200


def test_loops_that_drift_apart_are_not_said_to_contradict():
    """At steps far too large for it, a method that takes back nothing opens the loop by 0.2 m, and
    then a part of that lies in redundant rows: as much as its square."""
    mechanism, _, _ = loop("four_bar")
    method = mbd.VelocityImpulse(mbd.Pseudoinverse(), mbd.NoStabilisation())
    sol = mbd.simulate(mechanism, method, mechanism.state(), dt=0.05, num_steps=100)
    assert np.max(sol.phi_norm) > 0.1
