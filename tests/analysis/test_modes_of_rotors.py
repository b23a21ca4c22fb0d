"""Modes of rotors and beams against closed forms: whirl, Campbell diagrams, participation,
pictures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis_systems import Springs
from helpers import RedundantPendulum

import jaxmbd as mbd
from jaxmbd.analysis import campbell, linearise, mode_motion, modes, participation

MASS, POLAR, DIAMETRAL = 2.0, 0.03, 0.018
STIFFNESS = np.array([[4e4, -3e3], [-3e3, 6e2]])  # of an overhung shaft: (deflection, slope)


class Rotor(mbd.AbstractSystem):
    """A round disc on a massless shaft: forces and torques are linear in its deflection and in the
    slope of its axis. Rotations are those of a quaternion."""

    coordinates = mbd.Product(mbd.Plain(3), mbd.QuaternionWorld())

    def inertia(self, q):
        R = mbd.rotations.quaternion_to_matrix(q[3:])
        return R @ jnp.diag(jnp.array([DIAMETRAL, DIAMETRAL, POLAR])) @ R.T

    def mass_matrix(self, q):
        return jax.scipy.linalg.block_diag(MASS * jnp.eye(3), self.inertia(q))

    def force(self, t, q, v, u):
        axis = mbd.rotations.quaternion_to_matrix(q[3:])[:, 2]
        (k, c), (_, kr) = STIFFNESS
        # The slope of the axis along x and y is a turn about y and -x.
        deflection, slope = q[:2], axis[:2]
        pull = -k * deflection - c * slope
        bend = -c * deflection - kr * slope
        turn = jnp.stack([-bend[1], bend[0], jnp.zeros_like(bend[0])])
        gyroscopic = mbd.rotations.cross(v[3:], self.inertia(q) @ v[3:])
        return jnp.concatenate([pull, -1e3 * q[2:3], turn - gyroscopic])


def spinning(speed):
    q = np.array([0.0, 0, 0, 1, 0, 0, 0])
    return linearise(Rotor(), mbd.State(0.0, q, speed * np.eye(6)[5]), size=12)


def whirl(speed):
    """z = x + i y and b = slope_x + i slope_y, as exp(i w t):
    (k - m w^2) z + c b = 0, c z + (kr + Ip W w - Id w^2) b = 0; w > 0 is forward, w < 0 backward
    whirl."""
    (k, c), (_, kr) = STIFFNESS
    tilting = np.poly1d([-DIAMETRAL, POLAR * speed, kr])
    w = (np.poly1d([-MASS, 0.0, k]) * tilting - c * c).roots
    assert np.abs(w.imag).max() < 1e-6
    return np.sort(w.real)


def test_senses_of_whirl():
    """Each mode has the sign of its w in the closed form, also at rest, where forward and backward
    whirl have the same frequency. Critical speeds are those with w = W, of forward modes,
    (k - m w^2)(kr + (Ip - Id) w^2) = c^2, and with w = -W, of backward ones,
    (k - m w^2)(kr - (Ip + Id) w^2) = c^2."""
    speeds = np.linspace(-100.0, 400.0, 51)
    plain = campbell(spinning, speeds)
    assert plain.s.shape == (51, 5) and np.isnan(plain.whirl).all()
    assert set(plain.critical_speeds().sense) == {""}
    np.testing.assert_allclose(plain.damping_ratio, 0.0, atol=1e-8)
    # Each line is one mode, also where lines cross.
    np.testing.assert_allclose(np.abs(np.diff(plain.s.imag, n=2, axis=0)).max(), 0, atol=4.0)
    found = campbell(spinning, speeds, planes=[(0, 1), (3, 4)])
    for i in (0, 10, 12, 30, 50):
        axial = np.isnan(found.whirl[i])
        np.testing.assert_allclose(found.s[i, axial].imag, np.sqrt(1e3 / MASS), rtol=1e-9)
        signed = np.sort((found.whirl * found.s.imag)[i, ~axial])
        np.testing.assert_allclose(signed, whirl(np.abs(speeds[i])), rtol=1e-6)
    (k, c), (_, kr) = STIFFNESS
    critical, senses = found.critical_speeds(), {}
    for sense, tilting in (("forward", POLAR - DIAMETRAL), ("backward", -POLAR - DIAMETRAL)):
        squares = (np.poly1d([-MASS, k]) * np.poly1d([tilting, kr]) - c * c).roots
        expected = np.sort(np.sqrt(squares[squares > 0].real))
        senses[sense] = (np.array(critical.sense) == sense) & (critical.speed > 0)
        met = critical.speed[senses[sense]]
        np.testing.assert_allclose(met, expected[expected < 400], atol=0.05)
    assert senses["forward"].sum() == 1 and senses["backward"].sum() == 2
    for speed, mode, frequency in zip(critical.speed, critical.mode, critical.frequency):
        np.testing.assert_allclose(2 * np.pi * frequency, np.abs(speed), rtol=1e-12)
        line = np.interp(speed, speeds, found.frequency[:, mode])
        np.testing.assert_allclose(frequency, line, rtol=1e-12)
    assert "forward" in str(critical) and "backward" in str(critical) and "modes" in str(found)
    axes = mbd.plots.campbell(found, orders=(1, 2))
    assert len(axes.lines) == 7
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["forward", "backward"]
    with pytest.raises(ValueError, match="places from 0 to 5"):
        campbell(spinning, np.zeros(1), planes=[(0, 6)])


@pytest.mark.slow
def test_whirl_of_a_rotor_of_a_mechanism():
    """A disc turns in a housing on springs, about an oblique axis that is found. Tilting has
    (Id + Ih) w^2 - Ip W w = kr, and shifts have w = +-sqrt(k / m) at each speed (Jeffcott): each
    time one mode whirls forward, and one backward."""
    axis = np.array([0.6, 0.0, -0.8])
    across = np.eye(3) - np.outer(axis, axis)
    round_disc = mbd.Inertia(2.0, 0.36 * np.outer(axis, axis) + 0.2 * across)
    disc = mbd.Body("disc", round_disc)
    housing = mbd.Body("housing", mbd.Inertia(1.0, 0.05 * np.eye(3)))
    stiffness = [300.0] * 3 + [30.0] * 3
    support = mbd.Bushing("support", "ground", housing, stiffness=stiffness, point=np.zeros(3))
    bearing = mbd.Revolute("bearing", housing, disc, point=np.zeros(3), axis=axis)
    system = mbd.Mechanism([disc, housing], [bearing], [support])

    def model(speed):
        v = np.zeros(12)
        v[np.asarray(system.indices("disc").angular)] = speed * axis
        return linearise(system, mbd.State(0.0, system.state().q, v), size=14)

    speeds = np.array([0.0, 5.0, 15.0])
    found = campbell(model, speeds)
    for speed, s, whirl in zip(speeds, found.s, found.whirl):
        tilting = np.roots([0.25, -0.36 * speed, -30.0])
        shifts = np.array([1, -1]) * np.sqrt(300 / 3)
        signed = (whirl * s.imag)[~np.isnan(whirl)]
        np.testing.assert_allclose(np.sort(signed), np.sort([*tilting, *shifts]), rtol=1e-6)
    other = campbell(model, speeds[1:2], axis=-axis)
    np.testing.assert_allclose(np.nansum(other.whirl * other.s.imag), -0.36 * 5 / 0.25, rtol=1e-6)
    critical = found.critical_speeds()
    assert sorted(critical.sense) == ["", "backward", "backward", "forward"]
    with pytest.raises(ValueError, match="length 0"):
        campbell(model, np.ones(1), axis=np.zeros(3))


def test_frequency_response_is_drawn():
    one = np.eye(1)
    model = linearise(Springs(2 * one, 18 * one, one), mbd.State(0.0, [0.0], [0.0]), np.zeros(1))
    size, phase = mbd.plots.frequency_response(model, np.geomspace(0.01, 10, 50))
    np.testing.assert_allclose(size.lines[0].get_ydata()[0], 1 / 18, rtol=0.01)
    np.testing.assert_allclose(phase.lines[0].get_ydata()[-1], -180, atol=2)


def test_participation():
    """Two equal masses on a chain that hangs from the support: effective masses are
    (1 +- 2 / sqrt 5) m, and add up to 2 m."""
    K = 30 * np.array([[2.0, -1.0], [-1.0, 1.0]])
    at_rest = mbd.State(0.0, np.zeros(2), np.zeros(2))
    model = linearise(Springs(3 * np.eye(2), K, np.zeros((2, 2))), at_rest)
    found = participation(model, modes(model), np.ones(2))
    expected = 3 * (1 + np.array([2, 2, -2, -2]) / np.sqrt(5))
    np.testing.assert_allclose(found.mass, expected, rtol=1e-10)
    golden = (1 + np.sqrt(5)) / 2
    lengths = np.sqrt(1 + golden**2), np.sqrt(1 + 1 / golden**2)
    sizes = (1 + golden) / lengths[0], np.abs(1 - 1 / golden) / lengths[1]
    np.testing.assert_allclose(np.abs(found.factor), np.repeat(sizes, 2), rtol=1e-10)


def test_mode_as_a_motion():
    """A pendulum swings: the displacement is that of the shape, and it stays on its circle."""
    rest = np.array([0.0, -0.9])
    model = linearise(RedundantPendulum(), mbd.State(0.0, rest, np.zeros(2)))
    found = modes(model)
    motion = mode_motion(model, found, 0, amplitude=0.3, pictures=8, periods=2, duration=1.5)
    assert motion.q.shape == (17, 2) and np.asarray(motion.t)[-1] == 3.0
    q = np.asarray(motion.q)
    np.testing.assert_allclose(np.linalg.norm(q, axis=1), 0.9, rtol=1e-12)
    np.testing.assert_allclose(q[0], q[8], atol=1e-12)
    small = mode_motion(model, found, 0, amplitude=1e-5, pictures=8)
    shape = np.asarray(found.shapes)[:2, 0].real
    np.testing.assert_allclose((np.asarray(small.q)[0] - rest) / 1e-5, shape, atol=1e-4)
    with pytest.raises(ValueError, match="`index` must be less than 2"):
        mode_motion(model, found, 2)
