"""Mechanisms of bodies, joints and forces against minimal coordinates and published motions; poses
and numbers of their bodies."""

import json

import jax
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd._results import code

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


@jax.jit
def verdict(tensor):
    body = mbd.Body("arm", mbd.Inertia(1.0, tensor), position=[0.5, 0, 0])
    hinge = mbd.Revolute("hinge", "ground", body, point=[0.0, 0, 0], axis=Z)
    mechanism = mbd.Mechanism([body], [hinge])
    state = mechanism.state()
    point = mbd.evaluate(mechanism, None, 0.0, state.q, state.v)
    return mbd.UdwadiaKalaba().factorise(point).operator.result()


@pytest.mark.parametrize(
    "tensor, definite",
    [
        ([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 2.0]], True),
        # Here all that is on the diagonal is positive, and there in the inverse.
        ([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 3.0]], False),
        ([[-1.0, 2.0, 0.0], [2.0, -1.0, 0.0], [0.0, 0.0, 3.0]], False),
    ],
)
def test_indefinite_inertia_under_jit(tensor, definite):
    """Numbers that are not known when the body is made are checked by the solver."""
    expected = mbd.RESULTS.successful if definite else mbd.RESULTS.mass_matrix_indefinite
    assert int(code(verdict(np.array(tensor)))) == int(code(expected))


# --- poses and twists -----------------------------------------------------------------------------


def vectors(rng, kind, lead):
    """A pose, a twist or a vector with leading axes."""
    if kind is mbd.Twist:
        return mbd.Twist(rng.normal(size=(*lead, 3)), rng.normal(size=(*lead, 3)))
    if kind is not mbd.Pose:
        return rng.normal(size=(*lead, kind))
    p = rng.normal(size=(*lead, 4))
    return mbd.Pose(rng.normal(size=(*lead, 3)), p / np.linalg.norm(p, axis=-1, keepdims=True))


METHODS = [
    *((mbd.Pose, name, 3) for name in ("point", "direction", "local_point", "local_direction")),
    *((mbd.Pose, name, mbd.Pose) for name in ("compose", "relative")),
    (mbd.Pose, "rate", mbd.Twist),
    *((mbd.Twist, name, 3) for name in ("at", "moved")),
    *((kind, "of", size) for kind, size in ((mbd.Pose, 7), (mbd.Twist, 6))),
]


def test_all_methods_of_poses_and_twists_are_listed():
    for kind in (mbd.Pose, mbd.Twist):
        public = {name for name in vars(kind) if not name.startswith("_")}
        listed = {name for owner, name, _ in METHODS if owner is kind}
        assert public - set(kind._fields) - {"identity", "axes"} == listed


def called(kind, name, own, its):
    method = getattr(kind, name)
    return method(its) if name == "of" else method(own, its)


def test_poses_and_twists_take_leading_axes():
    """Of one sample each method is what the dynamics use, and what `test_body.py` confirms. So are
    energies and momenta of bodies."""
    rng, leads = np.random.default_rng(0), ((2, 3), (3,))
    arguments = [[vectors(rng, x, lead) for x, lead in zip((kind, other), leads, strict=True)]
                 for kind, _, other in METHODS]  # fmt: skip
    body, gravity = mbd.Body("b", BOX.moved([0.1, 0.2, 0.3])), np.array([1.0, 2.0, 3.0])
    moving = [vectors(rng, kind, leads[0]) for kind in (mbd.Pose, mbd.Twist)]

    def of_body(pose, twist):
        energies = body.kinetic_energy(pose, twist), body.potential_energy(pose, gravity)
        return *energies, *body.momentum(pose, twist)

    def over(fn, own, its):
        for k in range(1, 1 + max(map(len, leads))):
            fn = jax.vmap(fn, tuple(None if len(lead) < k else 0 for lead in leads))
        return fn(own, its)

    @jax.jit
    def both(arguments, moving):
        pairs = [
            (called(kind, name, *x), over(lambda a, b, k=kind, n=name: called(k, n, a, b), *x))
            for (kind, name, _), x in zip(METHODS, arguments, strict=True)
            if name != "of"
        ]
        for (kind, name, _), (_, x) in zip(METHODS, arguments, strict=True):
            if name == "of":
                one = kind.of
                for _ in leads[1]:
                    one = jax.vmap(one)
                pairs.append((kind.of(x), one(x)))
        one = of_body
        for _ in leads[0]:
            one = jax.vmap(one)
        return [*pairs, (of_body(*moving), one(*moving)), (moving[0].axes, axes(moving[0]))]

    def axes(pose):
        return tuple(pose.direction(e) for e in np.eye(3))

    for found, expected in both(arguments, moving):
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert x.shape == y.shape
            np.testing.assert_allclose(x, y, atol=1e-13)


# --- where the numbers stand ----------------------------------------------------------------------


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
    mechanism = hinged_pair()
    assert str(mechanism).splitlines() == [
        "Mechanism of 2 bodies, 1 joint: 14 coordinates, 12 velocities, 5 rows",
        "bodies:",
        '  "a", 1.3 kg',
        '  "b", 1.3 kg',
        "joints:",
        '  Revolute "hinge": a - b, 5 rows',
    ]
    # Masses are not known while tracing.
    texts = []

    def traced(mechanism):
        texts.append(str(mechanism))

    jax.eval_shape(traced, mechanism)
    assert texts[0].splitlines()[2] == '  "a"'
    chain = mbd.Mechanism([mbd.Body(str(i), BOX) for i in range(100)])
    assert str(chain).splitlines()[-1] == "  ... and 70 more"


# --- refusals ------------------------------------------------------------------------------------


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
         'Motor "m" needs a control'),
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make(mbd.Body("b", BOX))


def hinged_pair():
    bodies = [mbd.Body("a", BOX), mbd.Body("b", BOX)]
    return mbd.Mechanism(bodies, [mbd.Revolute("hinge", *bodies, point=[0, 0, 0], axis=Z)])
