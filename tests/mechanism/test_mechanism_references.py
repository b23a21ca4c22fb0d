"""Mechanisms against published motions, the same systems written by hand, and MuJoCo."""

import json
from types import SimpleNamespace

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import six_r_loop
import slider_crank_from_bodies
import two_four_bars

import jaxmbd as mbd

Z = [0.0, 0.0, 1.0]
# Short runs compile longer than they run.
QUICK = {"xla_backend_optimization_level": 0}


def reference(shared, name):
    return json.loads((shared / "references" / f"{name}.json").read_text())


def simulate(system, state, *, dt, t1, times=None, solver=None):
    """By RK4, with the states at `times`."""
    method = mbd.UdwadiaKalaba() if solver is None else mbd.UdwadiaKalaba(solver=solver)
    saveat = diffrax.SaveAt(t1=True) if times is None else diffrax.SaveAt(ts=jnp.asarray(times))
    sol = mbd.simulate(system, method, state, t1=t1, dt=dt, saveat=saveat, throw=False)
    assert sol.result == mbd.RESULTS.successful
    return sol


# --- Andrews' squeezing mechanism ---------------------------------------------------------------
#
# Schiehlen (1990), Multibody Systems Handbook; Hairer and Wanner, Solving Ordinary Differential
# Equations II, section VII.7: seven plane bodies in three loops, driven by a constant torque
# against a spring, beta turning two and a half times in 0.03 s.


def along(angle):
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def across(angle):
    return jnp.stack([jnp.sin(angle), -jnp.cos(angle)])


class Squeezer(mbd.AbstractSystem):
    """q = (beta, Theta, gamma, Phi, delta, Omega, epsilon); three loops closed at the point E."""

    p: SimpleNamespace = eqx.field(static=True)

    def __init__(self, parameters):
        self.p = SimpleNamespace(**parameters)

    def orientations(self, q):
        """Angles of the bodies 1 to 7."""
        be, th, ga, ph, de, om, ep = q
        return jnp.stack([be, be + th, ga, ph + de, de, om + ep, ep])

    def fixed(self):
        """The points A, B and C of the ground."""
        p = self.p
        return (jnp.array(x) for x in ([p.xa, p.ya], [p.xb, p.yb], [p.xc, p.yc]))

    def centers(self, q):
        """Of mass, shape (7, 2)."""
        p, (k1, k2, k3, k4, k5, k6, k7) = self.p, self.orientations(q)
        A, B, _ = self.fixed()
        return jnp.stack(
            [
                p.ra * along(k1),
                p.rr * along(k1) - p.da * along(k2),
                B + p.sb * along(k3) + p.sa * across(k3),
                A + p.zt * along(k5) + (p.e - p.ea) * across(k4),
                A + p.ta * along(k5) - p.tb * across(k5),
                A + p.u * across(k7) + (p.zf - p.fa) * along(k6),
                A + p.ua * across(k7) - p.ub * along(k7),
            ]
        )

    def spring_end(self, q):
        _, B, _ = self.fixed()
        return B + self.p.sd * along(q[2]) + self.p.sc * across(q[2])

    def elongation(self, q):
        _, _, C = self.fixed()
        return jnp.linalg.norm(self.spring_end(q) - C) - self.p.l0

    def masses(self):
        numbers = [[getattr(self.p, f"{x}{i}") for i in range(1, 8)] for x in "mI"]
        return jnp.array(numbers)

    def mass_matrix(self, q):
        m, inertia = self.masses()
        J, T = jax.jacfwd(self.centers)(q), jax.jacfwd(self.orientations)(q)
        return jnp.einsum("i,ikr,iks->rs", m, J, J) + jnp.einsum("i,ir,is->rs", inertia, T, T)

    def force(self, t, q, v, u):
        del t, u
        m, _ = self.masses()

        def velocities(q):
            return jax.jvp(self.centers, (q,), (v,))[1]

        _, bias = jax.jvp(velocities, (q,), (v,))
        inertial = jnp.einsum("i,ikr,ik->r", m, jax.jacfwd(self.centers)(q), bias)
        drive = jnp.zeros(7).at[0].set(self.p.mom)
        return drive - inertial - jax.grad(self.spring_energy)(q)

    def spring_energy(self, q):
        return self.p.c0 * self.elongation(q) ** 2 / 2

    def energy(self, q, v):
        """With that of the torque."""
        return v @ self.mass_matrix(q) @ v / 2 + self.spring_energy(q) - self.p.mom * q[0]

    def constraint(self, q, t):
        del t
        p, (k1, k2, k3, k4, k5, k6, k7) = self.p, self.orientations(q)
        A, B, _ = self.fixed()
        E = p.rr * along(k1) - p.d * along(k2)
        return jnp.concatenate(
            [
                E - B - p.ss * across(k3),
                E - A - p.e * across(k4) - p.zt * along(k5),
                E - A - p.zf * along(k6) - p.u * across(k7),
            ]
        )


def squeezer_from_bodies(parameters, q):
    """Seven bodies in space, ten hinges: 50 rows for 42 velocities, nine of them redundant. The
    frames of the bodies lie in their centres of mass."""
    plane = Squeezer(parameters)
    p, q = plane.p, jnp.asarray(q)
    A, B, C = plane.fixed()
    angles, centers = plane.orientations(q), plane.centers(q)
    k1, k2, _, _, k5, _, k7 = angles

    def space(point):
        return jnp.append(point, 0.0)

    m, inertia = plane.masses()
    bodies = [
        mbd.Body(
            f"K{i + 1}",
            # The motion is plane: any moments about the other axes will do.
            mbd.Inertia(m[i], inertia[i] * jnp.ones(3)),
            position=space(centers[i]),
            orientation=[np.cos(angles[i] / 2), 0, 0, np.sin(angles[i] / 2)],
        )
        for i in range(7)
    ]
    K1, K2, K3, K4, K5, K6, K7 = bodies
    E = p.rr * along(k1) - p.d * along(k2)
    places = [
        ("O", "ground", K1, jnp.zeros(2)),
        ("F", K1, K2, p.rr * along(k1)),
        ("B", "ground", K3, B),
        ("A5", "ground", K5, A),
        ("A7", "ground", K7, A),
        ("G", K5, K4, A + p.zt * along(k5)),
        ("H", K7, K6, A + p.u * across(k7)),
        ("E3", K2, K3, E),
        ("E4", K2, K4, E),
        ("E6", K2, K6, E),
    ]
    joints = [mbd.Revolute(name, a, b, point=space(point), axis=Z) for name, a, b, point in places]
    ends = (space(C), space(plane.spring_end(q)))
    forces = [
        mbd.Spring("spring", "ground", K3, points=ends, stiffness=p.c0, rest_length=p.l0),
        mbd.Torque("drive", K1, torque_world=[0, 0, p.mom]),
    ]
    return mbd.Mechanism(bodies, joints, forces, gravity=[0, 0, 0])


# Steps of 1e-6 s, as the reference asks for, and ten times larger ones for every day: the order is
# four, and the error at 1e-6 s is 1e-12 already.
SQUEEZER_STEPS = [1e-5, pytest.param(1e-6, marks=pytest.mark.slow)]


def squeezer_reference(shared):
    data = reference(shared, "andrews_squeezer")
    points = [point for point in data["reference"] if 0 < point["t"] <= 0.03]
    return data, points, [point["t"] for point in points]


@pytest.mark.slow
@pytest.mark.parametrize("dt", SQUEEZER_STEPS)
def test_squeezer_in_seven_angles(shared, dt):
    data, points, times = squeezer_reference(shared)
    system = Squeezer(data["parameters"])
    start = mbd.State(0.0, data["initial"]["q"], data["initial"]["v"])
    sol = simulate(system, start, dt=dt, t1=0.03, times=times)
    for i, point in enumerate(points):
        np.testing.assert_allclose(sol.q[i], point["q"], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(sol.v[i], point["v"], rtol=1e-6, atol=1e-4)
        # M a = f - G^T lambda there.
        np.testing.assert_allclose(-sol.multipliers[i], point["lambda"], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(sol.q[-1], data["published"]["q"], rtol=1e-6)
    energies = jax.vmap(system.energy)(sol.q, sol.v)
    np.testing.assert_allclose(energies, system.energy(start.q, start.v), rtol=1e-7)
    assert np.max(sol.phi_norm) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("dt", [1e-5, 1e-6])
def test_squeezer_from_bodies(shared, dt):
    data, points, times = squeezer_reference(shared)
    mechanism = squeezer_from_bodies(data["parameters"], data["initial"]["q"])
    state = mechanism.state()
    found = mbd.mobility(mechanism)
    assert (found.freedoms, found.rows, found.rank) == (1, 50, 41)
    sol = simulate(mechanism, state, dt=dt, t1=0.03, times=times)
    plane = Squeezer(data["parameters"])
    expected = jnp.array([point["q"] for point in points])
    angles = np.asarray(jax.vmap(plane.orientations)(expected))
    turned = []
    for i in range(7):
        pose = mechanism.pose(sol.q, f"K{i + 1}")
        w, x, y, z = pose.orientation.T
        np.testing.assert_allclose([x, y], np.zeros_like([x, y]), atol=1e-12)
        half = np.asarray(angles[:, i] / 2)
        # Of the angle between where it is and where it should be, whole turns aside.
        turned.append(2 * np.arctan(np.tan(np.arctan2(z, w) - half)))
        np.testing.assert_allclose(pose.position[:, 2], 0, atol=1e-14)
    # Relative to angles of size 1 at the least.
    assert np.abs(turned / np.maximum(1, np.abs(angles.T))).max() < 1e-6
    centers = jax.vmap(plane.centers)(expected)
    for i in range(7):
        found = mechanism.pose(sol.q, f"K{i + 1}").position[:, :2]
        np.testing.assert_allclose(found, centers[:, i], atol=1e-8)  # of a mechanism of 0.1 m
    rates = mechanism.twist(sol.v, "K1").angular[:, 2]
    np.testing.assert_allclose(rates, [point["v"][0] for point in points], rtol=1e-6)
    work = plane.p.mom * (expected[:, 0] - data["initial"]["q"][0])
    energies = jax.vmap(lambda q, v: mbd.total_energy(mechanism, q, v))(sol.q, sol.v)
    at_start = mbd.total_energy(mechanism, state.q, state.v)
    np.testing.assert_allclose(energies - work, at_start * np.ones(len(points)), rtol=1e-6)
    assert np.max(sol.phi_norm) < 1e-12


# --- the examples of Braun and Goldfarb from bodies ---------------------------------------------


@pytest.mark.slow
def test_slider_crank_from_bodies():
    """Through its singular pose, with the system written by hand."""
    t1 = 1.25
    mechanism = slider_crank_from_bodies.slider_crank_from_bodies()
    sol = slider_crank_from_bodies.run(mechanism, t1)
    by_hand = slider_crank_from_bodies.run_by_hand(t1)
    crank = mbd.joint_path(mechanism, "bearing", sol.t, sol.q, sol.v)[:, 0]
    assert crank[-1] > np.pi / 2
    np.testing.assert_allclose(crank, by_hand.q[:, 2], atol=1e-7)
    np.testing.assert_allclose(
        mechanism.twist(sol.v, "rod").angular[:, 2], by_hand.v[:, 3], atol=1e-6
    )
    assert np.max(sol.phi_norm) < 1e-10


def two_four_bars_from_bodies():
    """Three cranks and two couplers of length 1, upright and moving at 1 m/s to the right; frames
    in the middles. 35 rows for 30 velocities with one freedom; in line they leave three."""
    bar = mbd.Inertia(1.0, [1 / 12, 1 / 12, 1 / 12])
    cranks = [
        mbd.Body(
            f"crank {i}",
            bar,
            position=[i, 0.5, 0],
            velocity=[0.5, 0, 0],
            angular_velocity=[0, 0, -1],
        )
        for i in range(3)
    ]
    couplers = [
        mbd.Body(f"coupler {i}", bar, position=[i + 0.5, 1, 0], velocity=[1, 0, 0])
        for i in range(2)
    ]
    a, b = couplers
    ends = [
        *(("ground", crank, [i, 0, 0]) for i, crank in enumerate(cranks)),
        (cranks[0], a, [0, 1, 0]),
        (cranks[1], a, [1, 1, 0]),
        (cranks[1], b, [1, 1, 0]),
        (cranks[2], b, [2, 1, 0]),
    ]
    joints = [
        mbd.Revolute(f"hinge {k}", body_a, body_b, point=point, axis=Z)
        for k, (body_a, body_b, point) in enumerate(ends)
    ]
    return mbd.Mechanism([*cranks, *couplers], joints, gravity=[0, -9.81, 0])


@pytest.mark.slow
def test_two_four_bars_from_bodies(shared):
    """A whole turn, twice through the pose in line, against the published motion and the system of
    six coordinates."""
    points = reference(shared, "bg_two_four_bar")["reference"]
    mechanism = two_four_bars_from_bodies()
    assert mbd.mobility(mechanism).freedoms == 1
    times = np.linspace(0.1, 2.0, 20)
    solver = mbd.Pseudoinverse()
    sol = simulate(mechanism, mechanism.state(), dt=1e-3, t1=2.0, times=times, solver=solver)
    by_hand = simulate(
        two_four_bars.TwoFourBars(), two_four_bars.exact_start(), dt=1e-3, t1=2.0, times=times
    )
    middles = [np.asarray(mechanism.pose(sol.q, f"crank {i}").position) for i in range(3)]
    pins = np.concatenate([2 * x[:, :2] - [i, 0] for i, x in enumerate(middles)], axis=1)
    np.testing.assert_allclose(pins, by_hand.q, atol=1e-8)
    assert two_four_bars.exact_motion(2.0) > 2 * np.pi
    for point in points:
        if point["t"] in times.round(9):
            i = np.argmin(np.abs(times - point["t"]))
            np.testing.assert_allclose(pins[i], point["q"], atol=1e-8)
    assert np.max(sol.phi_norm) < 1e-10


# --- overconstrained and random loops -----------------------------------------------------------


@pytest.mark.slow
def test_six_hinges_in_a_ring():
    """Bricard's linkage moves though Grübler's count is 0: through a whole turn inside out, with
    the motion of its one freedom."""
    found = mbd.mobility(six_r_loop.six_r_loop())
    assert (found.freedoms, found.grubler, found.rank) == (1, 0, 29)
    _, sol, hinges = six_r_loop.run(4.0)
    around = np.unwrap(np.arctan2(hinges[1], hinges[0]))
    assert abs(around[-1] - around[0]) > 2 * np.pi
    np.testing.assert_allclose(hinges[:2], six_r_loop.exact_motion(sol.t), atol=1e-8)
    np.testing.assert_allclose(hinges[2:], np.tile(hinges[:2], (2, 1)), atol=1e-8)
    assert np.max(sol.phi_norm) < 1e-10


def random_ring(kinds, key):
    """Bodies in a ring that begins and ends at the ground, with a joint of each of the kinds, at
    random places and along random axes; then a random velocity that the joints allow."""
    random = np.random.default_rng(key)
    count = len(kinds) - 1
    angles = 2 * np.pi * np.arange(len(kinds)) / len(kinds)
    places = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    places += 0.2 * random.normal(size=places.shape)
    bodies = []
    for i in range(count):
        axes = np.linalg.qr(random.normal(size=(3, 3)))[0]
        orientation = axes * np.linalg.det(axes)
        size = random.uniform(0.2, 0.6, size=3)
        inertia = mbd.Inertia.box(size=size, mass=random.uniform(0.5, 2))
        inertia = inertia.moved(0.05 * random.normal(size=3))
        middle = (places[i] + places[i + 1]) / 2
        bodies.append(mbd.Body(f"body {i}", inertia, position=middle, orientation=orientation))
    chain = ["ground", *bodies, "ground"]
    joints = []
    for i, kind in enumerate(kinds):
        axes = np.linalg.qr(random.normal(size=(3, 3)))[0]
        orientation = axes * np.linalg.det(axes)
        joints.append(
            kind(f"joint {i}", chain[i], chain[i + 1], point=places[i], orientation=orientation)
        )
    # Free of gravity: 10^5 steps of a motion that stays of the same size.
    mechanism = mbd.Mechanism(bodies, joints, gravity=[0, 0, 0])
    wild = random.normal(size=6 * count)
    return mechanism, mbd.assemble(mechanism, mechanism.state().q, wild)


RINGS = {
    "four bodies, one freedom": [mbd.Revolute, mbd.Spherical, mbd.Revolute, mbd.Revolute,
                                 mbd.Revolute],
    "three bodies, two freedoms": [mbd.Universal, mbd.Spherical, mbd.Universal, mbd.Revolute],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kinds", RINGS.values(), ids=RINGS)
def test_random_rings_stay_closed_over_a_long_time(kinds):
    """10^5 steps. The joints must hold, and the energy too."""
    mechanism, state = random_ring(kinds, key=3)
    sol = mbd.simulate(
        mechanism,
        mbd.UdwadiaKalaba(),
        state,
        dt=1e-3,
        num_steps=100_000,
        saveat=diffrax.SaveAt(t0=True, steps=200),
        # Of every step, not of the saved ones alone.
        drift_tolerance=1e-10,
        throw=False,
    )
    assert sol.result == mbd.RESULTS.successful
    assert np.max(sol.phi_norm) < 1e-10 and np.max(sol.phidot_norm) < 1e-8
    energies = jax.vmap(lambda q, v: mbd.total_energy(mechanism, q, v))(sol.q, sol.v)
    assert np.linalg.norm(sol.v[-1]) > 0.1
    np.testing.assert_allclose(energies, energies[0] * np.ones(len(sol.t)), rtol=1e-4)


# --- MuJoCo ---------------------------------------------------------------------------------------
#
# Accelerations of two bodies in a chain at random states, in C and in joint coordinates: closed
# loops are soft in MuJoCo, but trees exact.

CHAIN = """
<mujoco>
  <option gravity="0.4 -0.7 -9.81"/>
  <worldbody>
    <body name="a" pos="0.1 0.2 0.3" quat="0.8 0.2 -0.4 0.4">
      <inertial pos="0.1 -0.2 0.3" mass="1.3"
                fullinertia="0.11 0.13 0.09 0.01 -0.02 0.015"/>
      {first}
      <body name="b" pos="0.5 -0.3 0.2" quat="0.4 0.4 0.8 -0.2">
        <inertial pos="-0.05 0.15 0.1" mass="0.7"
                  fullinertia="0.05 0.04 0.06 -0.005 0.004 0.01"/>
        {second}
      </body>
    </body>
  </worldbody>
</mujoco>
"""
HINGE = """<joint type="hinge" pos="0.1 0 -0.1" axis="0.6 0 0.8" stiffness="3" damping="0.4"
               armature="0.05"/>"""
SLIDE = '<joint type="slide" pos="0.1 0 -0.1" axis="0.6 0 0.8" armature="0.3"/>'
BALL = '<joint type="ball" pos="0.1 0 -0.1"/>'
TURN = '<joint type="hinge" pos="0.1 0 -0.1" axis="0.6 0 0.8"/>'
ARMS = """<joint type="hinge" pos="0.1 0 -0.1" axis="1 0 0"/>
          <joint type="hinge" pos="0.1 0 -0.1" axis="0 1 0"/>"""
PIN = np.array([0.1, 0, -0.1])
DIRECTION = np.array([0.6, 0, 0.8])

# MuJoCo's joints, and ours by a name, two bodies, a place, and the orientation of body b.
KINDS = {
    "hinge": (HINGE, lambda *x, R, **at: mbd.Revolute(*x, axis=R @ DIRECTION, **at)),
    "slide": (SLIDE, lambda *x, R, **at: mbd.Prismatic(*x, axis=R @ DIRECTION, **at)),
    "ball": (BALL, lambda *x, R, **at: mbd.Spherical(*x, **at)),
    "cylinder": (SLIDE + TURN, lambda *x, R, **at: mbd.Cylindrical(*x, axis=R @ DIRECTION, **at)),
    "cross": (ARMS, lambda *x, R, **at: mbd.Universal(*x, orientation=R, **at)),
}


def symmetric(xx, yy, zz, xy, xz, yz):
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


@pytest.mark.parametrize(
    "first, second",
    [
        ("hinge", "ball"),
        ("slide", "cross"),
        ("cylinder", "hinge"),
        pytest.param("cross", "slide", marks=pytest.mark.slow),
        pytest.param("ball", "cylinder", marks=pytest.mark.slow),
    ],
)
def test_accelerations_of_mujoco(first, second):
    mujoco = pytest.importorskip("mujoco", reason="compares with MuJoCo, a test extra")
    kinds = [KINDS[first], KINDS[second]]
    model = mujoco.MjModel.from_xml_string(CHAIN.format(first=kinds[0][0], second=kinds[1][0]))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)

    inertias = [
        mbd.Inertia(1.3, symmetric(0.11, 0.13, 0.09, 0.01, -0.02, 0.015), [0.1, -0.2, 0.3]),
        mbd.Inertia(0.7, symmetric(0.05, 0.04, 0.06, -0.005, 0.004, 0.01), [-0.05, 0.15, 0.1]),
    ]
    bodies = [
        mbd.Body(name, inertia, position=data.xpos[i], orientation=data.xquat[i])
        for i, (name, inertia) in enumerate(zip("ab", inertias), 1)
    ]
    joints, forces = [], []
    for i, (_, joint) in enumerate(kinds, 1):
        R = data.xmat[i].reshape(3, 3)
        ends = ["ground", *bodies][i - 1 : i + 1]
        place = data.xpos[i] + R @ PIN
        joints.append(joint(f"joint {i}", *ends, point=place, R=R))
        rotor = dict(point=place, axis=R @ DIRECTION)
        if (first, second)[i - 1] == "hinge":
            forces.append(mbd.Motor(f"motor {i}", *ends, gear=-5.0, rotor_inertia=0.002, **rotor))
            forces.append(
                mbd.TorsionSpring(f"spring {i}", *ends, stiffness=3.0, damping=0.4, **rotor)
            )
        if (first, second)[i - 1] in ("slide", "cylinder"):
            forces.append(mbd.LinearActuator(f"spindle {i}", *ends, rotor_inertia=0.3, **rotor))
    mechanism = mbd.Mechanism(bodies, joints, forces, gravity=[0.4, -0.7, -9.81])
    idle = lambda t, q, v: jnp.zeros(1)  # noqa: E731
    equations = jax.jit(
        lambda q, v: mbd.evaluate(mechanism, idle, jnp.zeros(()), q, v), compiler_options=QUICK
    )

    random = np.random.default_rng(5)
    for _ in range(5):
        # Within half a turn, where our springs are MuJoCo's.
        data.qpos = model.qpos0
        mujoco.mj_integratePos(model, data.qpos, random.normal(size=model.nv), 1.0)
        data.qvel = 2 * random.normal(size=model.nv)
        mujoco.mj_forward(model, data)
        v, expected = [], []
        for i in (1, 2):
            J, J_rate = np.zeros((6, model.nv)), np.zeros((6, model.nv))
            mujoco.mj_jac(model, data, J[:3], J[3:], data.xpos[i], i)
            mujoco.mj_jacDot(model, data, J_rate[:3], J_rate[3:], data.xpos[i], i)
            v.append(J @ data.qvel)
            expected.append(J @ data.qacc + J_rate @ data.qvel)
        q = np.concatenate([data.xpos[1:], data.xquat[1:]], axis=1).T.ravel()
        found = equations(jnp.asarray(q), jnp.asarray(np.transpose(v).ravel()))
        np.testing.assert_allclose(found.rows.phi, 0, atol=1e-13)
        np.testing.assert_allclose(found.rows.velocity, 0, atol=1e-12)
        M, J = np.asarray(found.M), np.asarray(found.rows.J)
        zero = np.zeros((len(J), len(J)))
        right = np.concatenate([found.f, found.rows.gamma])
        acceleration = np.linalg.solve(np.block([[M, -J.T], [J, zero]]), right)[: len(M)]
        expected = np.transpose(expected).ravel()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(acceleration, expected, atol=1e-9 * scale)
