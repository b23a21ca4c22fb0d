"""Samples and tangents side by side in the vector lanes of a CPU: the same numbers as one after the
other."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Pendulum, RedundantPendulum, assert_verdicts, in_the_way, three_bars

import jaxmbd as mbd
from jaxmbd._lanes import LANES, forward_jacobian, in_lanes

TABLE = jax.device_put(np.linspace(0.0, 1.0, 12).reshape(4, 3))


def traced(fn, *sample):
    return jax.make_jaxpr(fn)(*sample)


def mixed(x, y):
    """Operations of all kinds in loops: (3,), (4, 3) -> many arrays."""

    def step(carry, row):
        k, x, y, total = carry
        z = jnp.where(x[0] > 0.5, y, -y) + TABLE * x[None]
        z = jax.lax.dynamic_update_index_in_dim(z, jnp.cross(x, row), 1, 0).T.reshape(4, 3)
        x = x + TABLE.T[:, :0] @ y[:0, 0]  # a sum of no terms
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
        np.testing.assert_allclose(np.moveaxis(np.asarray(a), -1, 0), b, rtol=1e-12, atol=1e-12)


def repeated(body):
    """`body` in a loop of three steps."""
    return lambda x: jax.lax.scan(lambda x, _: (body(x), None), x, None, length=3)[0]


def printed(x):
    jax.debug.print("{}", x)
    return x


def sometimes(x):
    """A branch that is idle in samples with a negative x."""
    return x + jax.lax.cond(x > 0, lambda x: jnp.sin(3 * x), lambda x: jnp.zeros_like(x), x)


@pytest.mark.parametrize(
    "body, expected",
    [
        (repeated(jnp.sin), True),
        (repeated(lambda x: jax.lax.fori_loop(0, 5, lambda _, x: jnp.cos(x), x)), True),
        (repeated(lambda x: jax.lax.while_loop(lambda x: x > 1e-3, jnp.sin, x)), False),
        (repeated(lambda x: jax.lax.cond(x > 0, jnp.sin, jnp.square, x)), False),
        (repeated(sometimes), True),
        (repeated(printed), False),
        (repeated(lambda x: jax.pure_callback(np.sin, x, x)), False),
        (repeated(lambda x: jnp.sort(jnp.stack([x, 1 - x]))[0]), False),
        (repeated(lambda x: TABLE[jnp.floor(x).astype(int), 0]), False),
        (jnp.sin, False),  # no loop
        (lambda x: jnp.sum(repeated(jnp.sin)(jnp.full((20, 20), x))), False),  # too large
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


SEEN = np.random.default_rng(1).uniform(-1.0, 1.0, (20, 15))


def seen(x):
    """All operations as a function of any number of numbers: its arrays, and what is no float."""
    z = 0.5 + x @ SEEN[: x.shape[0]]
    (k, *end), outputs, *rest = mixed(z[:3], z[3:].reshape(4, 3))
    return (end, outputs["row"], rest), (k, outputs["largest"], outputs["x"])


def ordered(x):
    """An operation in a loop that cannot be computed in lanes."""
    y = repeated(lambda y: jnp.sort(jnp.sin(3 * y)))(x)
    return y, jnp.sum(y)


def assert_same_tree(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    "fn, n, on_cpus",  # 20: more than lanes
    [(seen, 20, True), (seen, 20, False), (ordered, 4, True)],
)
def test_forward_jacobian(monkeypatch, fn, n, on_cpus):
    """Against reverse mode, whatever the number of tangents and the device."""
    monkeypatch.setattr("jaxmbd._lanes.jacobian.loops_cost_nothing", lambda: on_cpus)
    x = np.random.default_rng(2).uniform(size=n)
    both = jax.jit(lambda x: (forward_jacobian(fn, x), jax.jacrev(fn, has_aux=True)(x)))
    assert_same_tree(*both(x))


def differences(fn, x, step=1e-3):
    """The Jacobian by differences of sixth order."""
    shifts = step * np.array([1.0, 2.0, 3.0, -1.0, -2.0, -3.0])[:, None, None] * np.eye(x.size)
    samples = np.array([[fn(x + shift) for shift in table] for table in shifts])
    return np.tensordot([3 / 4, -3 / 20, 1 / 60], samples[:3] - samples[3:], 1).T / step


def test_motions_of_mechanisms():
    """A loop with redundant rows goes into lanes, and so do its tangents."""
    mechanism = three_bars(True)
    state = mechanism.state()

    def end(x):
        start = mbd.State(0.0, state.q, state.v * 0 - x)
        options = dict(dt=5e-3, num_steps=20, start_tolerance=jnp.inf, throw=False)
        return mbd.simulate(mechanism, mbd.VelocityImpulse(), start, **options).q[-1]

    assert in_lanes(traced(end, np.asarray(0.1))) is not None
    along = traced(lambda x, dx: jax.jvp(end, (x,), (dx,)), *np.ones(2))
    assert in_lanes(along, [False, True], 2) is not None


def swing(x, duration):
    """The end of a pendulum with redundant rows, and its verdict."""
    length, (speed, weight) = x["length"], x["rest"]
    system = RedundantPendulum(Pendulum(length=length, gravity=9.81 * weight))
    start = mbd.State(0.0, jnp.stack([0 * length, -length]), jnp.stack([speed, 0 * speed]))
    method = mbd.LagrangeMultipliers(alpha=5.0, beta=5.0, solver=mbd.Pseudoinverse())
    options = dict(dt=duration / 10, num_steps=10, scheme=diffrax.Euler(), throw=False)
    sol = mbd.simulate(system, method, start, **options)
    return {"q": sol.q[-1], "height": sol.q[-1, 1] + length}, sol.result


X = {"length": np.asarray(0.9), "rest": np.array([0.7, 1.1])}


def test_motions():
    """Samples move as alone, and tangents as differences say; both are compiled whole."""

    def end(x):
        start = mbd.State(0.0, x[0] * jnp.array([0.0, -1.0]), x[1] * jnp.array([1.0, 0.0]))
        options = dict(dt=0.02, num_steps=10, throw=False)
        sol = mbd.simulate(Pendulum(length=x[0]), mbd.VelocityImpulse(), start, **options)
        return sol.q[-1], sol.result

    x = np.array([0.9, 0.7])
    samples = np.linspace(x, 1.2 * x, LANES)
    programs = (
        jax.jit(lambda x: forward_jacobian(end, x)).lower(x),
        jax.jit(in_lanes(traced(lambda x: end(x)[0], x))).lower(samples.T),
    )
    assert [in_the_way(program) for program in programs] == [{}, {}]
    slope, result = programs[0].compile()(x)
    (found,) = programs[1].compile()(samples.T)
    assert_verdicts(result, mbd.RESULTS.successful)
    alone = jax.jit(lambda x: end(x)[0])
    ends = [alone(x) for x in samples]
    np.testing.assert_allclose(np.asarray(found).T, ends, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(slope, differences(alone, x), rtol=1e-8, atol=1e-9)


def test_jacfwd():
    """As that of JAX, for trees of numbers, with further arguments and auxiliary output."""
    found = mbd.jacfwd(swing, has_aux=True)(X, 0.2)
    assert_same_tree(found, jax.jit(jax.jacfwd(swing, has_aux=True))(X, 0.2))
    assert found[0]["q"]["rest"].shape == (2, 2)


def test_jacfwd_is_differentiated():
    """As differences say. The rows of the pendulum are dependent, so the rule of the solve is
    needed."""

    def gradient(x):
        return mbd.jacfwd(lambda x: swing({"length": x[0], "rest": x[1:]}, 0.2)[0]["height"])(x)

    @jax.jit
    def both(x):
        value, pull = jax.vjp(gradient, x)
        return value, jax.vmap(pull)(jnp.eye(3))[0]

    x = np.concatenate([[X["length"]], X["rest"]])
    found = np.asarray(both(x)[1])
    np.testing.assert_allclose(found, differences(lambda x: both(x)[0], x), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found, found.T, rtol=1e-10, atol=1e-12)


def test_jacfwd_of_what_is_not_real():
    with pytest.raises(ValueError, match="argument .* holds int64. Give numbers like 3.0"):
        mbd.jacfwd(jnp.sin)(3)
    with pytest.raises(ValueError, match=r"value .* int64 at `\['b'\]`. .*has_aux=True"):
        mbd.jacfwd(lambda x: {"a": x, "b": jnp.array(1)})(3.0)
