"""Rotor inertia of actuators, the part of M that bodies share."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd

Y, Z = [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]
BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.3)
GEAR, ROTOR = 7.0, 0.004


def test_rotors_keep_energy_and_momentum():
    """Of two bodies that drive each other, at any velocities: M a = f, with the power of both
    actuators, but for what the rotors hold; d(v . M v / 2)/dt is that power, and M v in the
    directions that move all together is constant. The rate of M by differences."""
    a, b = mbd.Body("a", BOX), mbd.Body("b", BOX, position=[0.5, 0, 0.0])
    at = dict(point=[0.25, 0.0, 0.0], axis=Z)
    spindle = mbd.LinearActuator("spindle", a, b, gear=20.0, rotor_inertia=0.003, **at)
    motor = mbd.Motor("motor", a, b, gear=GEAR, rotor_inertia=ROTOR, **at)
    mechanism = mbd.Mechanism([a, b], (), [motor, spindle], gravity=[0, 0, 0])
    q, v = mechanism.state().q, np.random.default_rng(0).normal(size=12)
    h, u = 1e-4, np.array([0.7])

    @jax.jit
    @jax.vmap
    def values(s):
        w, here = jnp.asarray(v), mechanism.retract(q, s * v)
        blocks, f = mechanism.mass_blocks(here), mechanism.force(0.0, here, v, u)
        state = mbd.State(0.0, here, v)
        powers = mbd.reports.powers(mechanism, state, u)
        return {
            "M": blocks.dense(),
            "f": f,
            "momentum": jnp.stack([blocks @ w, mechanism.inertia(here, w)]),
            "power": sum(entry.power for entry in powers.values()),
            "rotors": mbd.reports.rotor_energies(mechanism, state),
            "energy": mbd.reports.total_energy(mechanism, state),
        }

    found = jax.device_get(values(h * np.array([0.0, 1.0, 2.0, -1.0, -2.0])))
    M, f = found["M"][0], found["f"][0]
    rate = (8 * (found["M"][1] - found["M"][3]) - (found["M"][2] - found["M"][4])) / (12 * h)
    np.testing.assert_allclose(found["energy"][0], v @ M @ v / 2, rtol=1e-12)
    np.testing.assert_allclose(found["momentum"][0], [M @ v] * 2, rtol=1e-12)
    np.testing.assert_allclose(v @ f + v @ rate @ v / 2, found["power"][0], rtol=1e-8)
    # Displacements, and rotations about the origin, of table columns.
    r, shifts = np.array(q)[:6].reshape(3, 2), np.eye(3)
    along = [np.append(np.tile(e[:, None], (1, 2)), np.zeros((3, 2))) for e in shifts]
    about = [
        np.append(np.cross(e[:, None], r, axis=0), np.tile(e[:, None], (1, 2))) for e in shifts
    ]
    momentum = rate @ v + f
    np.testing.assert_allclose(np.array(along) @ momentum, 0, atol=1e-8)
    # The arms change too.
    linear, swept = (M @ v)[:6].reshape(3, 2), np.reshape(v[:6], (3, 2))
    change = np.cross(swept, linear, axis=0).sum(1)
    np.testing.assert_allclose(np.array(about) @ momentum + change, 0, atol=1e-8)
    angular = v.reshape(6, 2)[5]
    rotor = GEAR**2 * ROTOR * (angular[1] - angular[0]) ** 2 / 2
    np.testing.assert_allclose(found["rotors"]["motor"][0], rotor, rtol=1e-12)


def test_sparse_elimination():
    """The motion of a closed chain of two links on hinges about y and z, each with a motor, is that
    of the dense matrices."""
    bodies, joints, motors, before = [], [], [], "ground"
    for i in range(2):
        body = mbd.Body(f"link {i}", BOX, position=[0.5 * i + 0.25, 0, 0])
        at = dict(point=[0.5 * i, 0, 0], axis=(Y, Z)[i])
        bodies.append(body)
        joints.append(mbd.Revolute(f"hinge {i}", before, body, **at))
        motors.append(mbd.Motor(f"m {i}", before, body, gear=GEAR + i, rotor_inertia=ROTOR, **at))
        before = body
    joints.append(mbd.joints.PointOnPlane("end", before, "ground", point=[1.0, 0, 0], axis=Z))
    mechanism = mbd.Mechanism(bodies, joints, motors)
    state, rng = mechanism.state(), np.random.default_rng(3)

    @jax.jit
    def solve(v, f, r):
        M, rows = mechanism.mass_blocks(state.q), mechanism.linearised(0.0, state.q, v)
        found = mbd.solvers.ConstraintOperator(mbd.solvers.BlockSparse(), M, rows.J)
        a, lam = found.solve(f, r)
        return a, lam, found.free(f), M @ f, found.result(), M.dense(), rows.J.dense()

    v, f = rng.normal(size=(2, 12))
    r = np.zeros(mechanism.row_count)
    a, lam, free, image, result, M, J = jax.device_get(solve(v, f, r))
    assert result == mbd.RESULTS.successful
    np.testing.assert_allclose(image, M @ f, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(M @ free, f, atol=1e-10)
    np.testing.assert_allclose(M @ a, f + J.T @ lam, atol=1e-7)
    np.testing.assert_allclose(J @ a, r, atol=1e-9)
