"""One step of each method is the one that its equations say, and has their derivatives."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import literal
import numpy as np
import pytest
from literal import MIDPOINT, RUNGE_KUTTA, TANGLE, H, T, continuous_step, split_step

import jaxmbd as mbd

K, D = np.array([300.0, 80.0, 50.0]), np.array([3.0, 7.0, 2.0, 4.0])
MIDDLE, EULER = diffrax.Midpoint(scan_kind="bounded"), diffrax.Euler()


def projection(norm):
    return mbd.Projection(norm=norm, iterations=1, tolerance=1.0)


def after_projection():
    def step(q, v):
        q, v, _ = continuous_step(literal.rigid(), literal.no_corrections, q, v, [(0.0, 1.0)])
        q, v = literal.projected(q, v, euclidean=False)
        return q, v, literal.rigid()(literal.point(T + H, q, v))[2]

    return mbd.LagrangeMultipliers(), step, EULER, projection(mbd.methods.KineticEnergy())


def continuous(method, motion, correction=literal.no_corrections, scheme=None):
    stages = RUNGE_KUTTA if scheme is None else MIDPOINT
    return method, lambda q, v: continuous_step(motion, correction, q, v, stages), scheme, None


def independent(choice, inverse):
    def step(q, v):
        return continuous_step(literal.rigid(), literal.no_corrections, q, v, RUNGE_KUTTA, inverse)

    return mbd.IndependentCoordinates(independent=choice), step, None, None


def split(method, impulse):
    return method, lambda q, v: split_step(impulse, q, v), None, None


def feedback(at):
    return 5.0 * at.velocity + literal.padded(20.0 * at.phi)


AUGMENTED = mbd.AugmentedLagrangian(50.0, 3, omega=4.0, xi=0.8)
CASES = {
    "udwadia_kalaba": continuous(
        mbd.UdwadiaKalaba(), literal.corrected, literal.both_corrections
    ),
    "baumgarte": continuous(mbd.LagrangeMultipliers(k=20.0, d=5.0), literal.rigid(feedback)),
    "explicit_penalty": continuous(mbd.methods.ExplicitPenalty(K, D), literal.springs(K, D)),
    "augmented_lagrangian": continuous(AUGMENTED, *literal.augmented(50.0, 3, 4.0, 0.8), MIDDLE),
    "null_space": independent(mbd.methods.NullSpace(), literal.along_rows),
    "partitioned": independent(mbd.methods.CoordinatePartitioning([0]), literal.beside_the_first),
    "projected": after_projection(),
    "passive": split(mbd.VelocityImpulse(), literal.passive),
    "relaxed": split(
        mbd.VelocityImpulse(stabilisation=mbd.methods.Relaxation(0.05)), literal.relaxed(0.05)
    ),
    "primal_penalty": split(
        mbd.ImplicitPenalty(K, D, mbd.methods.Primal()), literal.implicit_springs(K, D)
    ),
    "dual_penalty": split(mbd.ImplicitPenalty(K, D), literal.implicit_springs(K, D)),
    # The second row is held by an infinite damper, and its spring does nothing.
    "damped_penalty": split(
        mbd.ImplicitPenalty(K, np.array([3.0, np.inf, 2.0, 4.0])),
        literal.implicit_springs(K, np.array([3.0, np.inf, 2.0, 4.0])),
    ),
    "infinite_penalty": split(
        mbd.ImplicitPenalty(np.inf, np.array([0, 0, 0, np.inf])), literal.dead_beat
    ),
}  # fmt: skip


def stepped(system, method, projection, q, v, dt, scheme):
    stepper = mbd.Stepper(system, method, scheme, projection)
    start = stepper.init(mbd.State(T, q, v), start_tolerance=1.0)
    end = stepper.step(start, dt)
    return end.q, end.v, stepper.multipliers(end), end.result


step = eqx.filter_jit(stepped)
projected = eqx.filter_jit(lambda system, projection, q, v: projection(system, T + H, q, v))


def folded(lam):
    """Multipliers with the load of both copies on the first one."""
    return np.stack([lam[0] + float(TANGLE.copy) * lam[2], lam[1], lam[3]])


@pytest.mark.parametrize("name", CASES)
def test_step(name):
    """The passive feedback gives all of a small violation back as a velocity, and less of a large
    one."""
    method, expected, scheme, projection = CASES[name]
    for off in (1e-4, 3e-2):
        q, v = literal.state(off)
        *found, result = step(TANGLE, method, projection, q, v, np.asarray(H), scheme)
        h.assert_verdicts(result, mbd.RESULTS.successful)
        for x, exact in zip(found, expected(q, v), strict=True):
            if name == "infinite_penalty" and x is found[-1]:  # which scales the rows
                x, exact = folded(np.asarray(x)), folded(exact)
            np.testing.assert_allclose(x, exact, rtol=1e-8, atol=1e-10 * np.max(np.abs(exact)))


def test_projection_in_the_coordinates():
    q, v = literal.state(3e-2)
    *found, result = projected(TANGLE, projection(mbd.methods.Euclidean()), q, v)
    h.assert_verdicts(result, mbd.RESULTS.successful)
    for x, exact in zip(found, literal.projected(q, v, euclidean=True), strict=True):
        np.testing.assert_allclose(x, exact, rtol=1e-9)


def test_feedback():
    """Of the stabilisations whose steps differ in it alone."""
    kinds = mbd.methods.DeadBeat(), mbd.methods.Relaxation(0.05), mbd.methods.NoStabilisation()
    found = jax.jit(lambda phi: [kind.feedback(phi, H) for kind in kinds])(np.ones(2))
    np.testing.assert_allclose(found, [[1 / H] * 2, [20.0] * 2, [0.0] * 2], rtol=1e-15)


DIFFERENTIATED = {
    "udwadia_kalaba": (mbd.UdwadiaKalaba(), EULER),
    "augmented_lagrangian": (AUGMENTED, EULER),
    "projected": (projection(mbd.methods.Euclidean()), None),
    "passive": (mbd.VelocityImpulse(), None),
    "primal_penalty": (mbd.ImplicitPenalty(K, D, mbd.methods.Primal()), None),
    "dual_penalty": (mbd.ImplicitPenalty(K, D), None),
}


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_derivatives(name):
    """By all parameters and gains, the start and the step, in both modes; of positions, velocities
    and impulses, with dependent rows."""
    method, scheme = DIFFERENTIATED[name]
    tree = TANGLE, method, *literal.state(3e-2), np.asarray(H)
    tree, fixed = eqx.partition(tree, eqx.is_inexact_array_like)

    def moved(system, method, q, v, dt):
        if isinstance(method, mbd.Projection):
            return method(system, T + dt, q, v)[:2]
        stepper = mbd.Stepper(system, method, scheme)
        end = stepper.step(stepper.init(mbd.State(T, q, v), start_tolerance=1.0), dt)
        return end.q, end.v, end.multipliers

    def loss(tree):
        ends = jnp.concatenate(jax.tree.leaves(moved(*eqx.combine(tree, fixed))))
        return jnp.cos(1.0 + jnp.arange(ends.size, dtype=float)) @ ends

    h.check_scalar(loss, tree)


def test_baumgarte_parameters_and_gains_are_the_same():
    a = mbd.LagrangeMultipliers(alpha=3.0, beta=4.0)
    assert (float(a.k), float(a.d)) == (16.0, 6.0)


@pytest.mark.parametrize("name", CASES)
def test_float32(name):
    """Nothing is promoted, and nothing compiled."""
    method, _, scheme, projection = CASES[name]
    q, v = literal.state(1e-4)
    given = h.cast((TANGLE, method, projection, q, v, H), "float32")
    *found, _ = eqx.filter_eval_shape(stepped, *given, scheme)
    assert {x.dtype for x in found} == {np.dtype("float32")}
