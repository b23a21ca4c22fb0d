"""A published motion of a mechanism; poses, twists and numbers of its bodies; refusals."""

import json

import jax
import numpy as np
import pytest
from helpers import assert_verdicts
from scipy.spatial.transform import Rotation

import jaxmbd as mbd

BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.3)
Z = [0.0, 0.0, 1.0]


def test_heavy_top(shared):
    """Bruls, Cardona and Arnold (2012), on a ball joint at the origin; the frame of the body lies
    in its centre of mass."""
    reference = json.loads((shared / "references" / "heavy_top.json").read_text())["reference"]
    (expected,) = [point for point in reference if point["t"] == 0.2]
    omega = np.array([0.0, 150.0, -4.61538])
    inertia = mbd.Inertia(15.0, [0.234375, 0.46875, 0.234375])
    top = mbd.Body("top", inertia, position=[0, 1, 0], velocity=np.cross(omega, [0, 1, 0]),
                   angular_velocity=omega)  # fmt: skip
    mechanism = mbd.Mechanism([top], [mbd.Spherical("ball", "ground", top, point=[0, 0, 0])])

    @jax.jit
    def motion(state):
        options = dict(t0=0.0, t1=0.2, dt=1e-4, scheme=mbd.RK4(), throw=False)
        sol = mbd.simulate(mechanism, mbd.UdwadiaKalaba(), state, **options)
        return sol.q[-1], sol.v[-1], sol.multipliers[-1], sol.phi_norm[-1]

    q, v, lam, phi = map(np.array, motion(mechanism.state()))
    np.testing.assert_allclose(q[:3], expected["x_com"], atol=1e-7)
    np.testing.assert_allclose(v[:3], expected["v_com"], atol=1e-6)
    R = Rotation.from_quat(q[3:], scalar_first=True).as_matrix()
    np.testing.assert_allclose(R, expected["R"], atol=1e-6)
    # The force of the joint on the body, in world axes: the rows of a ball joint on the ground.
    np.testing.assert_allclose(lam, expected["reaction_on_body"], rtol=1e-5)
    assert phi < 1e-12


def test_indefinite_inertia_under_jit():
    """Numbers that are not known when the body is made are checked by the solver. Of the second all
    that is on the diagonal is positive, of the third that of the inverse."""

    @jax.jit
    @jax.vmap
    def verdict(tensor):
        body = mbd.Body("arm", mbd.Inertia(1.0, tensor))
        mechanism = mbd.Mechanism([body])
        state = mechanism.state()
        point = mbd.evaluate(mechanism, None, 0.0, state.q, state.v)
        return mbd.UdwadiaKalaba().factorise(point).operator.result()

    tensors = [[[x, y, 0], [y, x, 0], [0, 0, 3.0]] for x, y in ((2, 1), (1, 2), (-1, 2))]
    bad = mbd.RESULTS.mass_matrix_indefinite
    assert_verdicts(verdict(np.array(tensors)), [mbd.RESULTS.successful, bad, bad])


def test_poses_and_twists_take_leading_axes():
    """As each sample alone, which `test_body.py` confirms. So do energies and momenta of bodies."""
    body, gravity = mbd.Body("b", BOX.moved([0.1, 0.2, 0.3])), np.array([1.0, 2.0, 3.0])
    rng = np.random.default_rng(0)
    pose = mbd.Pose(rng.normal(size=(2, 3, 3)), rng.normal(size=(2, 3, 4)))
    twist = mbd.Twist(*rng.normal(size=(2, 2, 3, 3)))
    of_last = [rng.normal(size=(3, n)) for n in (3, 7, 6)]

    def all_methods(pose, twist, r, x, y):
        own = [getattr(pose, name)(r) for name in ("point", "direction", "local_point")]
        other, moving = mbd.Pose.of(x), mbd.Twist.of(y)
        energies = body.kinetic_energy(pose, twist), body.potential_energy(pose, gravity)
        return (own, pose.local_direction(r), pose.axes, pose.compose(other),
                pose.relative(other), pose.rate(moving), energies, twist.at(r), twist.moved(r),
                body.momentum(pose, twist))  # fmt: skip

    @jax.jit
    def both(*x):
        of_row = jax.vmap(all_methods)
        return all_methods(*x), jax.vmap(of_row, (0, 0, None, None, None))(*x)

    found, expected = map(jax.tree.leaves, both(pose, twist, *of_last))
    for i, (x, y) in enumerate(zip(found, expected, strict=True)):
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, atol=1e-13, err_msg=str(i))


def test_where_the_numbers_of_a_body_stand():
    names = ("a", "b", "c")
    mechanism = mbd.Mechanism([mbd.Body(name, BOX) for name in names])
    rng = np.random.default_rng(2)
    q, v = rng.normal(size=(4, 2, 21)), rng.normal(size=(4, 2, 18))

    @jax.jit
    def motions(q, v):
        return [(mechanism.pose(q, n), mechanism.twist(v, n)) for n in (*names, "ground")]

    *found, (pose, twist) = jax.device_get(motions(q, v))
    np.testing.assert_array_equal(pose.position, np.zeros((4, 2, 3)))
    np.testing.assert_array_equal(pose.orientation, np.tile([1.0, 0, 0, 0], (4, 2, 1)))
    np.testing.assert_array_equal(np.concatenate(twist), np.zeros((8, 2, 3)))
    for i, (name, (pose, twist)) in enumerate(zip(names, found, strict=True)):
        at = mechanism.indices(name)
        np.testing.assert_array_equal(pose.position, q[..., i:9:3])
        for entries, values in ((at.position, pose.position), (at.orientation, pose.orientation),
                                (at.q, np.concatenate(pose, axis=-1))):  # fmt: skip
            np.testing.assert_array_equal(q[..., entries], values)
        for entries, values in ((at.linear, twist.linear), (at.angular, twist.angular),
                                (at.v, np.concatenate(twist, axis=-1))):  # fmt: skip
            np.testing.assert_array_equal(v[..., entries], values)
    with pytest.raises(ValueError, match='"ground" never moves, so it has no numbers'):
        mechanism.indices("ground")
    with pytest.raises(ValueError, match='There is no body "d"'):
        mechanism.indices("d")


def test_a_mechanism_is_printed_by_its_members():
    body = mbd.Body("b", BOX)
    mechanism = mbd.Mechanism([body], [mbd.Spherical("ball", "ground", body, point=np.zeros(3))])
    assert str(mechanism).splitlines() == [
        "Mechanism of 1 body, 1 joint: 7 coordinates, 6 velocities, 3 rows",
        "bodies:",
        '  "b", 1.3 kg',
        "joints:",
        '  Spherical "ball": ground - b, 3 rows',
    ]
    # Masses are not known while tracing.
    texts = []
    jax.eval_shape(lambda x: texts.append(str(x)), mechanism)
    assert texts[0].splitlines()[2] == '  "b"'
    chain = mbd.Mechanism([mbd.Body(str(i), BOX) for i in range(100)])
    assert str(chain).splitlines()[-1] == "  ... and 70 more"


def motor(body):
    return mbd.Mechanism([body], (), [mbd.Motor("m", "ground", body, point=[0, 0, 0], axis=Z)])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda b: mbd.Mechanism([]), "needs at least one body"),
        (lambda b: mbd.Mechanism([b, b]), r"Names of bodies must differ, but \['b'\]"),
        (lambda b: mbd.Mechanism([b], gravity=[0, 0]), "`gravity`.* must have shape"),
        (lambda b: mbd.Mechanism([b], [mbd.Spherical("ball", b, mbd.Body("c", BOX),
                                                     point=[0, 0, 0])]),
         'Spherical "ball" connects the body "c", which is not among'),
        (lambda b: mbd.Mechanism([b]).pose(np.zeros(7), "x"), 'no body "x"'),
        (lambda b: mbd.Mechanism([b]).joint_coordinates(np.zeros(7), "x"), 'no joint "x"'),
        (lambda b: jax.eval_shape(lambda q: motor(b).force(0.0, q, q[1:], None), np.zeros(7)),
         'CoordinateActuator "m" needs a control'),
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make(mbd.Body("b", BOX))
