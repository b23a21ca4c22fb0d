"""Samples side by side in the vector lanes of a CPU: the same numbers as one after the other."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rollouts as r
from helpers import in_the_way, three_bars
from rollout_runs import KEY, assert_same, run

import jaxmbd as mbd
from jaxmbd.rollout.lanes import LANES, in_lanes

MANY = 300  # more than one chunk of 256; 128 is the least for lanes
TABLE = jnp.asarray(np.linspace(0.0, 1.0, 12).reshape(4, 3))


def traced(fn, *sample):
    return jax.make_jaxpr(fn)(*sample)


def mixed(x, y):
    """Operations of all kinds in loops: (3,), (4, 3) -> many arrays."""

    def step(carry, row):
        k, x, y, total = carry
        z = jnp.where(x[0] > 0.5, y, -y) + TABLE * x[None]
        z = jax.lax.dynamic_update_index_in_dim(z, jnp.cross(x, row), 1, 0).T.reshape(4, 3)
        square = TABLE.T @ z + jnp.diag(jax.lax.stop_gradient(jnp.diagonal(z)))
        x = jnp.clip(square @ x, -1.0, 1.0) + jnp.max(z, axis=0) * 2.0**-k
        x = jax.lax.cond(k % 2 == 0, lambda x: jnp.sin(x), lambda x: x**2 / 3, x)
        largest = jnp.argmax(jnp.abs(x))
        inner = jax.lax.fori_loop(0, 4, lambda i, s: s + jnp.sum(z[i]) * (i + 1.0), jnp.sum(x))
        y = jnp.pad(z[1:], ((0, 1), (0, 0))) + jnp.cumsum(z, axis=1)[::-1] / (1 + inner**2)
        out = {"x": x, "largest": largest, "row": y[k % 4], "same": TABLE[0] * (k + 1.0)}
        return (k + 1, x, y, total + jnp.linalg.norm(y)), out

    start = (jnp.array(0), x, y, jnp.zeros(()))
    end, outputs = jax.lax.scan(step, start, y)
    # Outside of the loops any operation will do.
    return end, outputs, jnp.sort(y, axis=0), jnp.linalg.inv(y[:3] + 3 * jnp.eye(3))


def test_operations():
    """Against `vmap`, by value and by derivative. Sums may be taken in another order."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(LANES, 3)), rng.uniform(size=(LANES, 4, 3))

    def both(x, y):
        return mixed(x, y), jax.grad(lambda x: mixed(x, y)[0][3])(x)

    lanes = in_lanes(traced(both, x[0], y[0]))
    assert lanes is not None
    found = jax.jit(lanes)(np.moveaxis(x, 0, -1), np.moveaxis(y, 0, -1))
    expected = jax.tree.leaves(jax.jit(jax.vmap(both))(x, y))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.moveaxis(a, -1, 0), b, rtol=1e-12, atol=1e-12)


def until_small(x):
    return jax.lax.while_loop(lambda x: x > 1e-3, lambda x: 0.5 * x, x)


def repeated(body):
    """`body` in a loop of three steps."""
    return lambda x: jax.lax.scan(lambda x, _: (body(x), None), x, None, length=3)[0]


def printed(x):
    jax.debug.print("{}", x)
    return x


def called(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), float), x)


def branched(x):
    return jax.lax.cond(x > 0, lambda x: jnp.sin(x), lambda x: x**2, x)


def sometimes(x):
    """A branch that is idle in samples with a negative x."""
    return x + jax.lax.cond(x > 0, lambda x: jnp.sin(3 * x), lambda x: jnp.zeros_like(x), x)


def large(x):
    return jnp.sum(repeated(lambda y: y * 0.9)(jnp.full((20, 20), x)))


@pytest.mark.parametrize(
    "body, expected",
    [
        (repeated(jnp.sin), True),
        (repeated(lambda x: jax.lax.fori_loop(0, 5, lambda _, x: jnp.cos(x), x)), True),
        (repeated(until_small), False),
        (repeated(branched), False),
        (repeated(sometimes), True),
        (repeated(printed), False),
        (repeated(called), False),
        (repeated(lambda x: jnp.sort(jnp.stack([x, 1 - x]))[0]), False),
        (repeated(lambda x: TABLE[jnp.floor(x).astype(int), 0]), False),
        (called, False),
        (jnp.sin, False),  # no loop
        (large, False),
    ],
)
def test_which_programs(body, expected):
    """Those with loops, in which no condition and no place depends on the sample."""
    assert (in_lanes(traced(body, jnp.ones(()))) is not None) is expected


@pytest.mark.parametrize("signs", ["both", "none idle", "all idle"])
def test_idle_branches(signs):
    """Each sample has its own branch, by value and by derivative."""
    x = np.linspace(-1.0, 1.0, LANES) + {"both": 0.0, "none idle": 2.0, "all idle": -9.0}[signs]
    value = lambda x: jax.value_and_grad(repeated(sometimes))(x)  # noqa: E731
    found = jax.jit(in_lanes(traced(value, jnp.zeros(()))))(x)
    y, slope = x, np.ones(LANES)
    for _ in range(3):
        slope = slope * np.where(y > 0, 1 + 3 * np.cos(3 * y), 1.0)
        y = np.where(y > 0, y + np.sin(3 * y), y)
    np.testing.assert_allclose(found, [y, slope], rtol=1e-13)


def end_of(mechanism, method):
    state = mechanism.state()

    def end(speed):
        start = mbd.State(0.0, state.q, state.v + speed)
        sol = mbd.simulate(mechanism, method, start, dt=1e-3, num_steps=20, throw=False)
        return jnp.sum(sol.q)

    return end


def dropped():
    body = mbd.Body("box", mbd.Inertia.box(size=[0.2, 0.2, 0.1], mass=1.0), position=[0, 0, 0.06])
    shapes = mbd.HalfSpace(), mbd.Box([0.1, 0.1, 0.05])
    return mbd.Mechanism([body], contacts=[mbd.Contact("c", "ground", body, *shapes)])


def adaptive():
    system, control = r.Pendulum(jnp.ones(())), diffrax.PIDController(rtol=1e-6, atol=1e-6)

    def end(speed):
        start = mbd.State(0.0, jnp.array([1.0, 0.0]), jnp.stack([jnp.zeros(()), speed]))
        options = dict(t1=0.02, dt=1e-3, stepsize_controller=control, throw=False)
        method = mbd.LagrangeMultipliers(alpha=5.0, beta=5.0, solver=mbd.Cholesky())
        return mbd.simulate(system, method, start, control=r.Pushed(jnp.zeros(2)), **options).q

    return end


@pytest.mark.parametrize(
    "name, end",
    [
        ("contact", lambda: end_of(dropped(), mbd.ContactImpulse())),
        ("adaptive", adaptive),
    ],
)
def test_one_after_the_other(name, end):
    """The number of iterations, the branch or the step depends on the sample."""
    assert in_lanes(traced(end(), jnp.zeros(()))) is None


@pytest.mark.parametrize(
    "closed", [pytest.param(False, marks=pytest.mark.slow), True], ids=["chain", "loop"]
)
@pytest.mark.parametrize("derivative", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_mechanisms(derivative, closed):
    """As alone; and sums over the arrays of all lanes are no library calls. The loop has redundant
    rows, at the start and after it has been pulled apart."""
    end = end_of(three_bars(closed), mbd.VelocityImpulse())
    one = jax.grad(end) if derivative else end
    lanes = in_lanes(traced(one, jnp.zeros(())))
    assert lanes is not None
    speeds = jnp.linspace(0.0, 0.3, LANES)
    lowered = jax.jit(lanes).lower(speeds)
    assert in_the_way(lowered) == {}
    (found,) = lowered.compile()(speeds)
    expected = jax.jit(lambda x: jax.lax.map(one, x))(speeds)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_rollouts_side_by_side(monkeypatch):
    """The same as alone, failures included, and with any number of threads to the last bit."""
    options = dict(reductions=r.reductions(), store=mbd.rollout.Memory())
    found = []
    for count in (1, 3):
        monkeypatch.setattr("jaxmbd.rollout.program.cores", lambda count=count: count)
        found.append(r.arrays(run(r.one, r.samples(MANY), **options)))
    assert_same(found[1], found[0], tolerance=0.0)
    np.testing.assert_array_equal(found[0]["['failed']"], np.flatnonzero(np.arange(MANY) % 7 == 3))
    # Chunks of 64 are computed one after the other.
    assert_same(found[0], r.arrays(run(r.one, r.samples(MANY), chunk=64, **options)))
    sample = jax.tree.map(lambda x: jnp.asarray(x[299]), r.samples(MANY))
    assert in_lanes(traced(r.one, sample, KEY)) is not None
    alone = r.one(sample, jax.random.fold_in(KEY, 299))
    q = found[0]["['outputs']['motion'].q"][299]
    np.testing.assert_allclose(q, alone["motion"].q, rtol=0, atol=1e-12)
