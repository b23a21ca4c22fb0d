"""What has to hold with the oldest and the newest versions that we promise, and on GPUs: one motion
of each family of steps, derivatives in both modes, a batch, a fit, and one use of each extra.

    python -m pytest -m promised
"""

import base64
import gzip
import json
import re

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from scipy.special import ellipj, ellipk

import jaxmbd as mbd
from jaxmbd import analysis, identify
from jaxmbd._kernels import has_warp
from jaxmbd._lanes import in_lanes
from jaxmbd._results import succeeded
from jaxmbd.trajopt import nlp

# The families have tests of their own in the default suite.
pytestmark = [pytest.mark.promised, pytest.mark.slow]

G = 9.81


def swing(t, angle, frequency):
    """Angle of a pendulum that starts at rest, in Jacobi's elliptic functions; one of small
    oscillations has this angular frequency."""
    k = np.sin(angle / 2)
    return 2 * np.arcsin(k * ellipj(ellipk(k**2) + frequency * t, k**2)[0])


# (case, enforcement, scheme, its order). On CPUs the loop over the stages of RK4 stays a loop, and
# those of other schemes are written out; on GPUs all are.
FAMILIES = {
    "continuous": ("top", mbd.UdwadiaKalaba(), mbd.RK4(), 4),
    "unrolled": ("driven_pendulum", mbd.LagrangeMultipliers(), diffrax.Bosh3(), 3),
    "penalty": ("pendulum", mbd.AugmentedLagrangian(1e4), diffrax.Midpoint(), 2),
    "split": ("skate_in_space", mbd.VelocityImpulse(), None, 1),
    "generalised_alpha": ("pendulum", mbd.GeneralisedAlpha(0.7), None, 2),
    "variational": ("driven_pendulum", mbd.Variational(), None, 2),
    "independent": ("skate_in_space", mbd.IndependentCoordinates(), mbd.RK4(), 4),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_order(name):
    """Against the known motion, at a step and half of it: the error falls with the order."""
    case, method, scheme, order = FAMILIES[name]
    case, dt, steps = h.CASES[case], 0.02, 20

    @jax.jit
    @jax.vmap
    def ends(dt):
        saveat, count = diffrax.SaveAt(steps=steps), 2 * steps
        return mbd.simulate(
            case.system, method, case.state, dt=dt, num_steps=count, saveat=saveat, scheme=scheme
        ).q

    q = ends(dt / jnp.array([1.0, 2.0]))
    exact = case.motion(dt * steps)[0]
    errors = [np.max(np.abs(found - exact)) for found in (q[0, 0], q[1, 1])]
    assert order - 0.25 < np.log2(errors[0] / errors[1]) < order + 0.6, errors
    assert errors[0] < 0.2 * (5 * dt) ** order


def test_adaptive_steps():
    """They keep to a tolerance."""
    case = h.CASES["pendulum"]
    controller = diffrax.PIDController(rtol=1e-8, atol=1e-8)
    options = dict(t1=1.0, dt=1e-2, scheme=diffrax.Tsit5(), stepsize_controller=controller)
    sol = mbd.simulate(case.system, mbd.UdwadiaKalaba(), case.state, **options)
    np.testing.assert_allclose(sol.q[-1], case.motion(1.0)[0], atol=1e-6)
    assert 5 < sol.stats["num_accepted_steps"] < 100


def test_sliding():
    """Friction takes mu g h in each step until the ball stands still, and the floor carries it."""
    dt, mu, speed = 0.01, 0.3, 1.0
    ball, state = h.Ball(*np.array([1.0, mu, 0.0])), mbd.State(0.0, [0.0, 0.0], [speed, 0.0])
    options = dict(dt=dt, num_steps=40, saveat=diffrax.SaveAt(steps=1))
    sol = mbd.simulate(ball, mbd.ContactImpulse(), state, **options)
    velocity = np.maximum(speed - mu * G * dt * np.arange(1, 41), 0.0)
    np.testing.assert_allclose(sol.v, np.stack([velocity, 0 * velocity], 1), atol=1e-9)
    np.testing.assert_allclose(sol.q[:, 0], dt * np.cumsum(velocity), atol=1e-9)
    np.testing.assert_allclose(sol.contact_force[:, 0, 0], G, rtol=1e-7)


def test_located_impact():
    """The height after a bounce, and its derivative with respect to restitution in both modes."""
    e, height, t1 = 0.8, 1.0, 0.7
    state = mbd.State(0.0, [0.0, height], [0.0, 0.0])
    method = mbd.ContactImpulse(impacts=h.located(1))

    def bounce(e):
        ball = h.Ball(jnp.array(1.0), jnp.array(0.0), e)
        return mbd.simulate(ball, method, state, t1=t1, dt=1e-2).q[-1, 1]

    value, forward, reverse = jax.jit(lambda e: h.both_modes(bounce, e))(jnp.array(e))
    impact, since = np.sqrt(2 * G * height), t1 - np.sqrt(2 * height / G)
    np.testing.assert_allclose(value, e * impact * since - G * since**2 / 2, rtol=1e-9)
    np.testing.assert_allclose([forward, reverse], impact * since, rtol=1e-9)


def thrown(length, t1=0.6):
    """End of a pendulum of this length that starts at 1.2 from the lowest point."""
    start = length * jnp.stack([jnp.sin(1.2), -jnp.cos(1.2)])
    system = h.Pendulum(length=length)
    state = mbd.State(0.0, start, jnp.zeros(2))
    return mbd.simulate(system, mbd.UdwadiaKalaba(), state, t1=t1, dt=1e-2, throw=False).q[-1]


def place(length, t=0.6):
    """The same in closed form."""
    angle = swing(t, 1.2, np.sqrt(G / length))
    return np.stack([length * np.sin(angle), -length * np.cos(angle)], axis=-1)


def test_derivatives():
    """With respect to the length, beside differences of the closed form."""
    found = jax.jit(lambda x: h.both_modes(lambda x: thrown(x)[0], x)[1:])(jnp.array(0.9))
    step = 1e-4
    expected = (place(0.9 + step)[0] - place(0.9 - step)[0]) / (2 * step)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_rollout():
    """On CPUs the samples of a chunk run side by side in lanes."""
    length = np.linspace(0.5, 1.5, 64)
    if jax.default_backend() == "cpu":
        assert in_lanes(jax.make_jaxpr(thrown)(length[0])) is not None
    rollouts = mbd.rollout.run(lambda sample, key: thrown(sample), length, progress=False)
    np.testing.assert_allclose(rollouts.outputs, place(length), atol=1e-6)
    assert rollouts.good.all()


def test_kernel():
    """The extra `gpu`: a kernel, on CPUs too, and as many derivatives as samples."""
    if not has_warp():
        pytest.skip("the extra `gpu` is not installed")
    length = np.linspace(0.5, 1.5, 8)

    def one(length, key):
        return thrown(length), jax.grad(lambda length: thrown(length)[0])(length)

    rollouts = mbd.rollout.run(one, length, kernel=True, progress=False)
    assert rollouts.kernel and rollouts.good.all()
    ends, derivatives = rollouts.outputs
    np.testing.assert_allclose(ends, place(length), atol=1e-6)
    step = 1e-4
    expected = (place(length + step) - place(length - step))[:, 0] / (2 * step)
    np.testing.assert_allclose(derivatives, expected, rtol=1e-6)


def test_fit():
    """The gravity of a pendulum, from positions of the closed form."""
    times = np.linspace(0.0, 1.0, 21)
    measured = np.sin(swing(times, 1.2, np.sqrt(G)))
    start = mbd.State(0.0, [np.sin(1.2), -np.cos(1.2)], [0.0, 0.0])
    record, read = identify.Record(times, measured, start), {"x": lambda sample: sample.q[0]}
    pendulum, free = h.Pendulum(length=1.0, gravity=8.0), {"gravity": identify.Positive()}
    found = identify.fit(pendulum, free, record, read, dt=1e-2, progress=False)
    assert succeeded(found.result)
    np.testing.assert_allclose(found.values["gravity"], G, rtol=1e-6)


def test_modes():
    """Of a damped oscillator, with an output that closes over an array."""
    system, scale = h.Oscillator(), np.array([2.0, -3.0])
    rest = mbd.State(0.0, jnp.zeros(1), jnp.zeros(1))
    model = analysis.linearise(system, rest, output=lambda t, q, v, u: scale * q[0])
    np.testing.assert_allclose(model.C, np.outer(scale, [1, 0]), atol=1e-14)
    modes = analysis.modes(model)
    decay = float(system.damping / (2 * system.mass))
    rate = np.sqrt(float(system.stiffness / system.mass) - decay**2)
    np.testing.assert_allclose(modes.s, -decay + 1j * rate * np.array([1, -1]), rtol=1e-10)


def test_verdicts():
    """Those of a batch are told in words."""
    results = mbd.RESULTS.successful, mbd.RESULTS.dead_point
    text = str(jax.tree.map(lambda *x: jnp.stack(x), *results))
    assert "successful" in text and "dead point" in text


MASS, ARM, INERTIA = 2.0, 0.5, 0.1
FREQUENCY = np.sqrt(MASS * G * ARM / (INERTIA + MASS * ARM**2))
MODEL = f"""
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <body name="rod">
      <joint name="hinge" axis="0 1 0"/>
      <inertial pos="0 0 {-ARM}" mass="{MASS}" diaginertia="{INERTIA} {INERTIA} {INERTIA}"/>
    </body>
  </worldbody>
  <keyframe><key name="raised" qpos="1"/></keyframe>
</mujoco>
"""


@pytest.fixture(scope="module")
def swinging():
    """The motion of a rod on a hinge, from an angle of 1."""
    rod = mbd.Body("rod", mbd.Inertia(MASS, [INERTIA] * 3), position=[0.0, 0.0, -ARM])
    hinge = mbd.Revolute("hinge", "ground", rod, point=[0.0, 0.0, 0.0], axis=[0.0, 1.0, 0.0])
    mechanism = mbd.Mechanism([rod], [hinge])
    state = mbd.place_bodies(mechanism, {"hinge": 1.0})
    saveat = diffrax.SaveAt(t0=True, steps=20)
    sol = mbd.simulate(mechanism, mbd.UdwadiaKalaba(), state, t1=1.0, dt=5e-3, saveat=saveat)
    return mechanism, sol


def test_mechanism(swinging):
    """A physical pendulum."""
    mechanism, sol = swinging
    angle = jax.jit(jax.vmap(lambda q: mechanism.joint_coordinates(q, "hinge")))(sol.q)
    np.testing.assert_allclose(angle[:, 0], swing(np.asarray(sol.t), 1.0, FREQUENCY), atol=1e-7)


def test_picture(swinging):
    """The extra `viz`."""
    matplotlib = pytest.importorskip("matplotlib", reason="the extra `viz` is not installed")
    matplotlib.use("Agg")
    mechanism, sol = swinging
    (axes,) = mbd.plots.coordinates(mechanism, sol)
    (line,) = axes.lines
    expected = swing(np.asarray(sol.t), 1.0, FREQUENCY)
    np.testing.assert_allclose(line.get_ydata(), expected, atol=1e-7)
    mbd.plots.draw(mechanism, sol.q[-1]).figure.canvas.draw()


def test_page(swinging):
    """The extra `view`: the page holds the poses of the motion, in single precision."""
    pytest.importorskip("viser", reason="the extra `view` is not installed")
    mechanism, sol = swinging
    text = re.search(r'id="jaxmbd-content">([^<]*)<', mbd.view(mechanism, sol).html)
    assert text is not None
    raw = gzip.decompress(base64.b64decode(text[1]))
    end = 4 + int.from_bytes(raw[:4], "little")
    header = json.loads(raw[4:end])
    kind, start, count = header["arrays"][header["runs"][0]["poses"]["__array__"]]
    poses = np.frombuffer(raw, kind, count, end + start).reshape(len(sol.t), 7)
    np.testing.assert_allclose(poses, sol.q, atol=1e-6)


def test_file(tmp_path):
    """The extra `io`: the same pendulum from a file of MuJoCo."""
    pytest.importorskip("mujoco", reason="the extra `io` is not installed")
    (tmp_path / "rod.xml").write_text(MODEL)
    loaded = mbd.load(tmp_path / "rod.xml")
    state = loaded.keyframes["raised"]
    sol = mbd.simulate(loaded.mechanism, mbd.UdwadiaKalaba(), state, t1=0.5, dt=loaded.dt)
    angle = loaded.qpos_qvel(sol)[0][-1, 0]
    np.testing.assert_allclose(angle, swing(0.5, 1.0, FREQUENCY), atol=1e-7)


def test_store(tmp_path):
    """The extra `rollout`: outputs are read from disk, and a second run computes none."""
    pytest.importorskip("zarr", reason="the extra `rollout` is not installed")
    x = np.linspace(0.0, 1.0, 20)
    for computed in (20, 0):
        store = mbd.rollout.Zarr(tmp_path / "runs.zarr")
        runs = mbd.rollout.run(lambda x, key: {"y": x**2}, x, store=store, progress=False)
        assert runs.computed == computed
        np.testing.assert_allclose(runs.outputs["outputs/y"][:], x**2, rtol=1e-15)


@pytest.mark.parametrize("solver", [nlp.Uno(), nlp.SciPy()])
def test_program(solver):
    """The extra `trajopt`: min x + y on the circle x^2 + y^2 = 2."""
    if isinstance(solver, nlp.Uno):
        pytest.importorskip("unopy", reason="the extra `trajopt` is not installed")

    def parts(x, data):
        return jnp.sum(x), (x @ x - 2.0)[None]

    term = nlp.Term(parts, np.array([[0, 1]]), None, jnp.zeros(1), jnp.zeros(1))
    free = jnp.full(2, jnp.inf)
    found = solver.solve(nlp.NonlinearProgram((term,), jnp.array([-2.0, -0.5]), -free, free))
    np.testing.assert_allclose(found.x, -1.0, atol=1e-5)


def test_export():
    """The extra `export`: a program that was written and read gives the same numbers."""
    pytest.importorskip("flatbuffers", reason="the extra `export` is not installed")
    number = jax.ShapeDtypeStruct((), jnp.float64)
    program = export.export(jax.jit(thrown))(number).serialize()
    found = export.deserialize(program).call(0.9)
    np.testing.assert_allclose(found, place(0.9), atol=1e-6)
