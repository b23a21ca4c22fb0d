"""What forces take as input: functions of time, entries of the control, single precision. Bad input
is refused; the error names the argument."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.3)
X, Z, AXIS = [1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.6, 0.0, 0.8]
TIME, CONTROL = np.asarray(0.7), np.array([9.0, -0.4, 1.5, 0.3])


class Ramp(mbd.forces.AbstractSignal):
    slope: jax.Array

    def __call__(self, t, u):
        return self.slope * t * u[1]


@eqx.filter_jit
def load_of(element):
    """Of a body turned by half a turn about x."""
    pose, still = mbd.Pose(jnp.zeros(3), jnp.eye(4)[1]), mbd.Twist(jnp.zeros(3), jnp.zeros(3))
    (wrench,) = element.wrenches((pose,), (still,), TIME, CONTROL)
    return wrench.force


@pytest.mark.parametrize(
    "force, value",
    [
        ([1.0, 2.0, 3.0], [1, 2, 3]),
        (lambda t: jnp.stack([t, 2 * t, 0 * t]), [0.7, 1.4, 0]),
        (mbd.FromControl(2, gear=[1.0, 0.0, 2.0]), [1.5, 0, 3]),
        (mbd.FromControl((3, 0, 1), gear=2.0), [0.6, 18, -0.8]),
        (Ramp(np.ones(3)), [-0.28] * 3),
    ],
    ids=["constant", "time", "entry", "entries", "own"],
)
def test_signals(force, value):
    """In world axes and in those of the body."""
    load = mbd.PointForce("f", "b", force_world=force, force_body=force)
    np.testing.assert_allclose(load_of(load), np.array(value) * [2, 0, 0], rtol=1e-12)
    load = mbd.PointForce("f", "b", force_world=force)
    np.testing.assert_allclose(load_of(load), value, rtol=1e-12)


def test_inputs_at_a_limit_have_the_derivative_from_within():
    """Where they often are in optimal motions."""
    along = mbd.coordinates.PathLength(["ground", "b"], [None, None])
    actuator = mbd.forces.CoordinateActuator("f", along, limits=[-2.0, 2.0])
    slope = jax.vmap(jax.grad(lambda u: actuator.force(0.0, 0.0, 0.0, u[None])))
    np.testing.assert_array_equal(jax.jit(slope)(np.array([-3.0, -2.0, 1.0, 2.0])), [0, 1, 1, 1])


def test_float32():
    """Bodies in single precision have forces in single precision, whatever time and control are."""
    body = mbd.Body("b", mbd.Inertia.sphere(radius=np.float32(0.1), mass=1.0))
    forces = [
        mbd.Spring("s", "ground", body, points=[X, Z], stiffness=1.0, rest_length=0.1,
                   law=lambda x, rate: x**2, potential=lambda x: x**4, actuator=jnp.sin),
        mbd.PointForce("p", body, force_world=mbd.FromControl((0, 1, 2)), force_body=X),
        mbd.Bushing("k", "ground", body, point=X, stiffness=np.ones(6)),
        mbd.SlidingFriction("g", "ground", body, point=X, axis=Z, dry=1.0),
        mbd.Drag("d", body, quadratic=1.0, wind=lambda t: jnp.stack([t, t, t])),
    ]  # fmt: skip
    mechanism = mbd.Mechanism([body], (), forces)
    state = mechanism.state()
    found = jax.eval_shape(lambda u: mechanism.force(TIME, state.q, state.v, u), CONTROL)
    assert found.dtype == state.q.dtype == jnp.float32


AT = dict(point=[0, 0, 0])


def length_to(body):
    return mbd.coordinates.PathLength(["ground", body], [None, None])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda b: mbd.Spring("s", "ground", b, points=[X, Z], stiffness=1.0),
         '`rest_length` of Spring "s" must be given with `stiffness`'),
        (lambda b: mbd.TorsionSpring("t", "ground", b, **AT, axis=Z, stiffness=[1.0, 2.0]),
         r'`stiffness` of TorsionSpring "t" must have shape \(\), but has \(2,\)'),
        (lambda b: mbd.Bushing("k", "ground", b, **AT, stiffness=-np.eye(6)),
         "must be a symmetric, positive semidefinite matrix"),
        (lambda b: mbd.Bushing("k", "ground", b, **AT, stiffness=np.tri(6)),
         "must be a symmetric, positive semidefinite matrix"),
        (lambda b: mbd.forces.CoordinateSpring("s", length_to(b), stiffness=1.0, rest=[0.2, 0.1]),
         'Ends of `rest` of CoordinateSpring "s" must be lower <= upper'),
        (lambda b: mbd.forces.CoordinateActuator("a", length_to(b), limits=[1.0, -1.0]),
         '`limits` of CoordinateActuator "a" must be lower <= upper'),
        (lambda b: mbd.contacts.CoordinateLimit("l", length_to(b), lower=0.2, upper=0.1),
         'Limits of CoordinateLimit "l" must be lower <= upper'),
        (lambda b: mbd.FromControl((0, -1)), "`index` of FromControl"),
        (lambda b: mbd.PointForce("p", b), 'PointForce "p" needs `force_world` or `force_body`'),
        (lambda b: mbd.PointForce("p", b, force_world=[1.0, 2.0]),
         r'`force_world` of PointForce "p" must have shape \(3,\), but has \(2,\)'),
        (lambda b: mbd.PointForce("p", "b", force_world=X, point=X), "give the `Body` instead of"),
        (lambda b: mbd.PointForce("p", "ground", force_world=X), "must act on a body"),
        (lambda b: mbd.Force("f", [], abs), 'Force "f" needs a body that can'),
        (lambda b: mbd.Force("f", [b, "ground"], abs, frames=[b.pose]), "has 1 `frames`"),
        (lambda b: mbd.Mechanism([b], (), [mbd.Drag("d", "x", linear=1.0)]),
         'Drag "d" connects the body "x"'),
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make(mbd.Body("b", BOX))


@pytest.mark.parametrize(
    "make, u, message",
    [
        # JAX would read the last entry instead.
        (lambda b: mbd.Motor("m", "ground", b, **AT, axis=Z, index=2), np.ones(2),
         r'CoordinateActuator "m" reads entry 2 of the control.*at least 3 entries.*shape \(2,\)'),
        (lambda b: mbd.Motor("m", "ground", b, **AT, axis=Z), None,
         'CoordinateActuator "m" needs a control'),
        (lambda b: mbd.Torque("t", b, torque_body=mbd.FromControl((0, 1, 5))), np.ones(3),
         '`torque_body` of Torque "t" reads entry 5'),
        (lambda b: mbd.Torque("t", b, torque_body=mbd.FromControl(0)), np.ones(3),
         r'`torque_body` of Torque "t" must have shape \(3,\), but its value has \(\)'),
        (lambda b: mbd.Spring("s", "ground", b, points=[X, Z], rest_length=1.0,
                              actuator=mbd.FromControl(4)), np.ones(3),
         '`actuator` of CoordinateSpring "s" reads entry 4'),
        (lambda b: mbd.Force("f", [b], lambda poses, twists, t, u: poses[0].position), None,
         'The function of Force "f" must return a force and a torque'),
        (lambda b: mbd.Force("f", [b, "ground"], lambda poses, twists, t, u: [(poses[0].position,
                                                                               jnp.zeros(3))]),
         None, 'The function of Force "f" must return a force and a torque'),
    ],
)  # fmt: skip
def test_bad_input_found_while_tracing(make, u, message):
    body = mbd.Body("b", BOX)
    mechanism = mbd.Mechanism([body], (), [make(body)])
    state = mechanism.state()
    u = None if u is None else np.asarray(u)
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda u: mechanism.force(TIME, state.q, state.v, u), u)


def test_friction_of_a_joint():
    body = mbd.Body("b", BOX)
    joint = mbd.Revolute("hinge", "ground", body, **AT, axis=AXIS)
    friction = mbd.forces.JointFriction(joint, dry=2.0)
    assert (friction.name, friction.bodies) == ("hinge", ("ground", "b"))
    for found, own in zip(friction.frames, (joint.frame_a, joint.frame_b), strict=True):
        np.testing.assert_array_equal(np.concatenate(found), np.concatenate(own))
