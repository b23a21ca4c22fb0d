"""A run by kernels is the same run. On CPUs Warp compiles the same sources as for GPUs."""

import functools
from unittest.mock import Mock

import diffrax
import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rollouts import N, arrays, assert_same, cheap, in_memory, in_processes, of_cheap, run, stored

import jaxmbd as mbd
from jaxmbd._kernels import has_warp
from jaxmbd._results import code

pytestmark = pytest.mark.skipif(not has_warp(), reason="the extra `gpu` is not installed")


def calls_python(index, key):
    """The index, by a callback."""
    double = jax.ShapeDtypeStruct((), float)
    return jax.pure_callback(lambda x: np.float64(x), double, index, vmap_method="sequential")


def test_what_can_be_no_kernel(monkeypatch):
    """Is refused if a kernel is demanded, and otherwise left to XLA, which the result says."""
    with pytest.raises(ValueError, match="callback"):
        run(calls_python, 3, kernel=True)
    monkeypatch.setattr("jaxmbd.rollout.kernels.on_cpu", lambda devices: False)
    found = run(calls_python, 3)
    np.testing.assert_array_equal(found.outputs, [0.0, 1.0, 2.0])
    assert not found.kernel and "callback" in found.way and found.way in str(found)
    refused = run(calls_python, 3, kernel=False)
    assert refused.way == "XLA" and "computed by" not in str(refused)


def test_without_warp(monkeypatch):
    """What demands a kernel raises, and what would only be faster says what is missing."""
    monkeypatch.setattr("jaxmbd.rollout.kernels.has_warp", lambda: False)
    monkeypatch.setattr("jaxmbd.rollout.vmapped.has_warp", lambda: False)
    double, on_cpu = lambda index, key: 2 * index, mbd.rollout.kernel(np.square, on_cpu=True)
    for demanding in (lambda: run(double, 3, kernel=True), lambda: on_cpu(3)):
        with pytest.raises(ImportError, match=r"jaxmbd\[gpu\]"):
            demanding()
    monkeypatch.setattr("jaxmbd.rollout.kernels.on_cpu", lambda devices: False)
    found = run(double, 3)
    assert not found.kernel and "warp-lang" in found.way
    monkeypatch.setattr("jaxmbd.rollout.vmapped._device", lambda: Mock(platform="gpu"))
    with pytest.warns(UserWarning, match="warp-lang"):
        assert mbd.rollout.kernel(np.square)(3) == 9


@pytest.mark.slow
def test_reductions_and_stores(tmp_path):
    """Random numbers, verdicts, a padded last chunk, and a store that is resumed."""
    options = dict(chunk=8, kernel=True)
    expected = arrays(in_memory(8))
    store = mbd.rollout.Memory()
    found = run(cheap, N, reductions=of_cheap(), store=store, **options)
    assert found.kernel and "a kernel with a thread for each sample" in str(found)
    assert_same(arrays(found), expected)
    stored(tmp_path, kernel=False)
    again = stored(tmp_path, kernel=True)
    assert again.computed == 0
    assert_same(arrays(again), {k: x for k, x in expected.items() if "outputs" not in k})


@pytest.mark.slow
def test_eight_devices(tmp_path):
    output = f"{tmp_path}/x.npz"
    in_processes({"n": N, "chunk": 4, "output": output, "kernel": True}, devices=8)
    found = np.load(output)
    assert found["devices"] == 8
    assert_same(found, arrays(in_memory(8)))


BOX = mbd.Inertia.box(size=[0.4, 0.05, 0.05], mass=1.0)


def chain():
    """Two links on hinges about y and x, which start at rest and level."""
    first = mbd.Body("first", BOX, position=[0.2, 0.0, 0.0])
    second = mbd.Body("second", BOX, position=[0.6, 0.0, 0.0])
    joints = [
        mbd.Revolute("y", "ground", first, point=[0.0, 0.0, 0.0], axis=[0.0, 1.0, 0.0]),
        mbd.Revolute("x", first, second, point=[0.4, 0.0, 0.0], axis=[1.0, 0.0, 0.0]),
    ]
    return mbd.Mechanism([first, second], joints)


def four_bar():
    """A parallelogram that leans, whose loop has redundant rows."""
    places = [[0.1, 0.0, 0.2], [0.5, 0.0, 0.4], [0.7, 0.0, 0.2]]
    names, points = (
        ("crank", "coupler", "rocker"),
        [[0, 0, 0], [0, 0, 0.4], [0.6, 0, 0.4], [0.6, 0, 0]],
    )
    bodies = [mbd.Body(n, BOX, position=at) for n, at in zip(names, places)]
    around = ["ground", *bodies, "ground"]
    joints = [
        mbd.Revolute(f"{i}", around[i], around[i + 1], point=x, axis=[0.0, 1.0, 0.0])
        for i, x in enumerate(points)
    ]
    return mbd.Mechanism(bodies, joints)


def motion(mechanism, sample, steps=20):
    pull, drift = sample
    start = mechanism.state()
    pulled = eqx.tree_at(lambda m: m.gravity, mechanism, pull * mechanism.gravity)
    q = start.q.at[0].add(drift)
    state = mbd.State(0.0, q, start.v)
    return mbd.simulate(pulled, mbd.VelocityImpulse(), state, dt=1e-2, num_steps=steps, throw=False)


PULLS, DRIFTS = np.linspace(0.5, 1.5, 12), np.where(np.arange(12) % 5 == 3, 0.1, 0.0)


def assert_alike(one, samples, tolerance):
    """The run by a kernel and that by XLA, twice with the same bits."""
    found, again, expected = (run(one, samples, kernel=k) for k in (True, True, False))
    assert found.kernel and not expected.kernel
    for a, b, c in zip(*map(jax.tree.leaves, (found.outputs, again.outputs, expected.outputs))):
        np.testing.assert_array_equal(a, b)
        # Violations are differences of numbers of the size 1.
        scale = np.max(np.abs(c), initial=1.0, where=np.isfinite(c))
        np.testing.assert_allclose(a, c, rtol=0, atol=tolerance * scale)
    np.testing.assert_array_equal(found.failures.index, expected.failures.index)
    np.testing.assert_array_equal(code(found.failures.result), code(expected.failures.result))
    return found


@pytest.mark.slow
def test_a_chain_with_failures():
    """Samples whose joints are open at the start fail, and the others do not notice."""
    mechanism = chain()
    found = assert_alike(lambda x, key: motion(mechanism, x), (PULLS, DRIFTS), 1e-12)
    np.testing.assert_array_equal(found.failures.index, np.flatnonzero(DRIFTS))


@pytest.mark.slow
def test_a_gradient_of_a_closed_loop():
    """Of the height of the coupler by the pull: through all steps, in a batch within a sample."""
    mechanism = four_bar()

    def gradient(x, key):
        height = lambda pull: motion(mechanism, (pull, x[1])).q[-1, 7]  # noqa: E731
        return jax.vmap(jax.value_and_grad(height))(x[0] * jnp.array([1.0, 0.9]))

    found = assert_alike(gradient, (PULLS[:4], DRIFTS[:4] * 0), 1e-9)
    # A stronger pull makes it fall deeper.
    assert np.all(found.outputs[1] < 0)


@pytest.mark.slow
def test_adaptive_steps():
    """Each sample takes its own, some five times as many as others."""

    def one(speed, key):
        return mbd.simulate(
            helpers.Pendulum(length=jnp.asarray(1.0)),
            mbd.UdwadiaKalaba(mbd.Cholesky()),
            mbd.State(0.0, jnp.array([1.0, 0.0]), jnp.stack([jnp.zeros_like(speed), speed])),
            t1=0.5,
            dt=1e-2,
            scheme=diffrax.Tsit5(),
            stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-8),
            throw=False,
        )

    found = assert_alike(one, np.linspace(0.0, 30.0, 6), 1e-9)
    steps = found.outputs.stats["num_steps"]
    assert steps[-1] > 5 * steps[0] and len(found.failures) == 0


@pytest.mark.slow
def test_errors_are_raised():
    """With their messages, as without kernels."""
    mechanism = chain()
    start = mechanism.state()

    def raising(x, key):
        state = mbd.State(0.0, start.q.at[0].add(x), start.v)
        return mbd.simulate(mechanism, mbd.VelocityImpulse(), state, dt=1e-2, num_steps=3).q[-1]

    found, known = (run(raising, 0 * DRIFTS, kernel=k) for k in (True, False))
    np.testing.assert_allclose(found.outputs, known.outputs, rtol=1e-12, atol=1e-15)
    for kernel in (True, False):
        with pytest.raises(Exception, match="constraints"):
            run(raising, DRIFTS, kernel=kernel)


def marked(fn):
    return mbd.rollout.kernel(fn, on_cpu=True)


@pytest.mark.slow
def test_a_batch_in_a_program_of_the_users():
    """The step of an environment under `vmap` in a scan, with weights that it closes over, and
    derivatives by the weights and the starts, in both modes."""
    stepper = mbd.Stepper(chain(), mbd.VelocityImpulse())
    first = stepper.init(chain().state())
    states = jax.tree.map(lambda x: jnp.stack([x, x, x]), first)
    keys = jr.split(jr.key(0), 3)

    def loss(weight, pushes, mark):
        def step(state, push, key):
            state = stepper.step(eqx.tree_at(lambda s: s.v, state, state.v + weight * push), 0.01)
            return state, state.t * jr.normal(key)

        def all_steps(states, _):
            return jax.vmap(mark(step))(states, pushes, keys)

        last, seen = jax.lax.scan(all_steps, states, None, length=3)
        return jnp.sum(last.q**2) + jnp.sum(seen)

    pushes = jr.normal(jr.key(1), (3, first.v.size))

    @functools.partial(jax.jit, static_argnums=0)
    def derived(mark, weight, pushes):
        value = lambda w, x: loss(w, x, mark)  # noqa: E731
        along = jax.jvp(value, (weight, pushes), (jnp.ones_like(weight), pushes))[1]
        return jax.value_and_grad(value, (0, 1))(weight, pushes), along

    operands = jnp.asarray(0.1), 0.1 * pushes
    for a, b in zip(*(jax.tree.leaves(derived(mark, *operands)) for mark in (marked, lambda f: f))):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * np.max(np.abs(b)))


@pytest.mark.slow
def test_batches_of_batches_and_derivatives_of_samples():
    """Batched by one operand, by both, twice, and around derivatives, which sum over samples what
    they share. Second derivatives, and numbers without any, pass."""

    def fn(x, y, k):
        return {"a": jnp.sin(x) * y.sum() * k, "k": k + 1}

    x, y, k = jnp.array([0.3, 0.5, -1.0]), jnp.array([[2.0, 1.0], [0.5, 4.0]]), jnp.array(2)

    @functools.partial(jax.jit, static_argnums=0)
    def found(mark, x, y, k):
        f = mark(fn)
        each = jax.vmap(f, (0, None, None))
        total = lambda x, y: jnp.sum(jax.vmap(lambda y: each(x, y, k)["a"])(y) ** 2)  # noqa: E731
        of_one = lambda x, y: f(x, y, k)["a"]  # noqa: E731
        return (
            each(x, y[0], k),
            jax.vmap(each, (None, 0, None))(x, y, k),
            jax.vmap(jax.vmap(f, (0, None, None)), (None, 0, 0))(x, y, jnp.stack([k, k + 1])),
            jax.grad(total, (0, 1))(x, y),
            jax.jacfwd(total, (0, 1))(x, y),
            jax.vmap(jax.grad(of_one, (0, 1)), (0, None))(x, y[0]),
            jax.jacrev(lambda y: each(x, y, k)["a"])(y[0]),
            f(x[0], y[0], k),
            jax.hessian(total)(x, y),
            jax.vmap(jax.grad(jax.grad(of_one)), (0, None))(x, y[0]),
        )

    pairs = zip(*(jax.tree.leaves(found(mark, x, y, k)) for mark in (marked, lambda f: f)))
    for a, b in pairs:
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-15)


@pytest.mark.slow
def test_errors_of_marked_functions():
    """Are raised with their message if some sample has one, from within loops and branches."""

    def fn(x, n):
        def turn(k, x):
            x, _ = eqx.error_if((x, k), x > 3, "x is more than three")
            return 1.5 * x

        x = jax.lax.fori_loop(0, n, turn, x)
        return eqx.branched_error_if(x, x < 0, n, ["below", "below after a turn"])

    each = jax.jit(jax.vmap(marked(fn)))
    starts = jnp.array([1.0, 1.0, 3.5]), jnp.array([1, 2, 0])
    np.testing.assert_allclose(each(*starts), [1.5, 2.25, 3.5])
    for last, message in ((3.1, "more than three"), (-1.0, "below after a turn")):
        with pytest.raises(Exception, match=message):
            jax.block_until_ready(each(starts[0].at[2].set(last), starts[1].at[2].set(1)))
