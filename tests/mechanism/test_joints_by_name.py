"""Elements name the joints that they read, and the mechanism fills them in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import identify


def two_pendulums(by_name):
    """Two bars on hinges, of which one has limits, with one of each element that reads joints."""
    inertia = mbd.Inertia.box(size=[0.1, 0.1, 1.0], mass=1.0)
    bars = [mbd.Body(name, inertia, position=[x, 0, -0.5]) for x, name in enumerate("ab")]
    options = {"axis": [0.0, 1.0, 0.0]}
    hinges = [
        mbd.Revolute(
            "left", "ground", bars[0], point=[0.1, 0.0, 0.0], limits=(-0.5, 2.0), **options
        ),
        mbd.Revolute("right", "ground", bars[1], point=[1.0, 0.0, 0.2], **options),
    ]
    left, right = ("left", "right") if by_name else hinges
    angle = mbd.coordinates.WeightedSum([mbd.OfJoint(left), mbd.OfJoint(right)], [1.0, 0.5])
    joints = [
        mbd.Gear("gear", left, right, teeth=(2, 3)),
        mbd.joints.CoordinateConstraint(
            "copy", mbd.OfJoint(left), angle, coefficients=[0.0, 1.0, 0.5]
        ),
    ]
    forces = [
        mbd.forces.CoordinateSpring("at left", mbd.OfJoint(left), stiffness=3.0, rest=0.4),
        mbd.forces.CoordinateSpring("at right", mbd.OfJoint(right), stiffness=2.0, rest=0.0),
        mbd.forces.CoordinateActuator("both", angle, gear=0.3),
    ]
    limit = mbd.JointLimit(left, restitution=0.5)
    return mbd.Mechanism(bars, hinges + joints, forces, [limit])


def test_names_and_joints_make_one_mechanism():
    given, named = two_pendulums(False), two_pendulums(True)
    assert jax.tree.structure(given) == jax.tree.structure(named)
    for x, y in zip(jax.tree.leaves(given), jax.tree.leaves(named), strict=True):
        assert x.dtype == y.dtype and np.array_equal(x, y)
    # Springs on hinges with and without limits are evaluated together.
    assert [len(kind) for kind in given.force_stacks] == [2, 1]
    assert named.force_element("at right").bodies == ("ground", "b")
    again = mbd.Mechanism(named.bodies, named.joints, named.forces, named.contacts)
    assert jax.tree.structure(again) == jax.tree.structure(named)
    # The numbers of a joint stand once: two frames of position and orientation, and the limits.
    paths = [path for path in identify.leaves(named) if "frame_" in path or "limits" in path]
    assert len(paths) == 2 * 4 + 1


def test_a_moved_joint_takes_its_elements_along():
    """Derivatives by the frame of a joint reach all that reads it, in a simulation too."""
    mechanism = two_pendulums(True)
    model, start = identify.Leaves(mechanism), mechanism.state()
    rng = np.random.default_rng(0)
    q, v = np.asarray(start.q) + 0.1 * rng.normal(size=14), rng.normal(size=12)
    path = "joints[left].frame_b.orientation"
    change = rng.normal(size=4)

    @jax.jit
    def evaluated(s):
        moved = model({path: mechanism.joint("left").frame_b.orientation + s * change})
        return [
            part
            for own in (moved, moved.specialised())
            for part in (
                own.force(0.0, jnp.asarray(q), jnp.asarray(v), jnp.array([0.7])),
                own.constraint(jnp.asarray(q), 0.0)[-2:],
                own.gap(jnp.asarray(q), 0.0),
            )
        ]

    h = 1e-6
    low, found, high = (list(map(np.asarray, evaluated(s))) for s in (-h, 0.0, h))
    slopes = jax.jit(lambda: jax.jvp(evaluated, (0.0,), (1.0,))[1])()
    for i, slope in enumerate(slopes):
        np.testing.assert_allclose(slope, (high[i] - low[i]) / (2 * h), atol=1e-7)
        assert np.any(np.abs(np.asarray(slope)) > 1e-2)
        np.testing.assert_array_equal(found[i], found[i % 3])


def test_a_coordinate_of_an_earlier_joint_reads_the_joint_of_the_mechanism():
    mechanism = two_pendulums(True)
    path, point = "joints[left].frame_b.position", np.array([0.0, 0.3, 0.2])
    moved = identify.Leaves(mechanism)({path: point})
    earlier = mbd.OfJoint(mechanism.joint("left"))
    found = moved.resolved(earlier).known.frame_b.position
    np.testing.assert_array_equal(found, point)
    assert not np.array_equal(earlier.known.frame_b.position, point)


@pytest.mark.parametrize(
    "read, fault",
    [
        ("middle", r"which is not among \['left', 'right'\]"),
        ("ball", "which has several"),
    ],
)
def test_bad_names(read, fault):
    mechanism = two_pendulums(True)
    joints = list(mechanism.joints[:2])
    if read == "ball":
        joints.append(mbd.Spherical("ball", *mechanism.bodies, point=[0.5, 0, 0]))
    spring = mbd.forces.CoordinateSpring("spring", mbd.OfJoint(read), stiffness=1.0)
    with pytest.raises(ValueError, match=fault) as error:
        mbd.Mechanism(mechanism.bodies, joints, [spring])
    assert 'CoordinateSpring "spring"' in str(error.value)
    with pytest.raises(ValueError, match="Only the name"):
        _ = spring.bodies


def test_joint_of_another_mechanism():
    mechanism = two_pendulums(True)
    left = mbd.Revolute("left", *mechanism.bodies, point=[0, 0, 0], axis=[0, 1, 0])
    spring = mbd.forces.CoordinateSpring("spring", mbd.OfJoint(left), stiffness=1.0)
    with pytest.raises(ValueError, match="Give joints different names"):
        mbd.Mechanism(mechanism.bodies, mechanism.joints, [spring])
