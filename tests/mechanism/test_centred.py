"""What is left out of the equations where the frames of all bodies are at their centres of mass."""

import diffrax
import equinox as eqx
import jax
import numpy as np
import pytest

import jaxmbd as mbd

PLANE = mbd.Plane(normal=[0.0, 0.0, 1.0])
TENSOR = np.array([[0.3, 0.02, 0.0], [0.02, 0.4, 0.0], [0.0, 0.0, 0.5]])


def two_bodies(plane=None, center=(0.0, 0.0, 0.0)):
    bodies = [
        mbd.Body(name, mbd.Inertia(mass, mass * TENSOR, center=center), position=[mass, 0, 0])
        for name, mass in (("a", 1.0), ("b", 2.0))
    ]
    return mbd.Mechanism(bodies, gravity=[0.3, -9.0, 0.0], plane=plane)


@pytest.mark.parametrize("plane", [None, PLANE], ids=["in space", "in a plane"])
def test_the_equations_are_the_same(plane):
    general = two_bodies(plane)
    lean = general.specialised()
    assert lean is not general

    @jax.jit
    def terms(mechanism, q, v, w):
        q1 = mechanism.retract(q, 0.1 * v)
        M = mechanism.mass_blocks(q)
        return dict(
            mass=M.dense(),
            inverse=jax.vmap(lambda x: M.root @ (x @ M.root))(M.dense()),
            whitener=M.root.whitener(),
            root=M.root @ w,
            momentum=mechanism.inertia(q, v),
            force=mechanism.inertial_force(q, v),
            mean_force=mechanism.inertial_force(q, v, 0.1),
            retracted=q1,
            difference=mechanism.difference(q, q1),
            carried=mechanism.carried(q, q1, v),
        )

    rng, state = np.random.default_rng(0), general.state()
    q, v, w = (np.asarray(x) + rng.normal(size=x.size) for x in (state.q, state.v, state.v))
    if plane is None:
        p = q.reshape(7, 2)[3:]
        p /= np.linalg.norm(p, axis=0)
    found, expected = terms(lean, q, v, w), terms(general, q, v, w)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-14, err_msg=name)
    np.testing.assert_allclose(found["inverse"], np.eye(len(v)), rtol=0, atol=1e-14)


def test_only_centers_that_stay_zero_are_left_out():
    mechanism = two_bodies()
    lean = mechanism.specialised()
    assert lean._centred and lean.specialised() is lean
    assert not lean.specialised(False)._centred
    assert not two_bodies(center=(0.0, 0.1, 0.0)).specialised()._centred

    def traced(mechanism):  # such as a centre of mass to be estimated
        assert not mechanism.specialised()._centred
        return mechanism.gravity

    jax.eval_shape(eqx.filter_jit(traced), mechanism)


def test_functions_of_the_user_get_the_system_that_computes_everything():
    mechanism, seen = two_bodies(), []

    def fn(t, state, system):
        seen.append(system._centred)
        return state.q

    saveat, method = diffrax.SaveAt(t1=True, fn=fn), mbd.VelocityImpulse()

    def simulated():
        state = mechanism.state()
        sol = mbd.simulate(
            mechanism, method, state, dt=1e-3, num_steps=2, saveat=saveat, throw=False
        )
        return sol.ys

    jax.eval_shape(simulated)
    assert seen and not any(seen)
