"""What bodies, joints and forces look like: shapes of every kind, symbols of every kind."""

import types

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd._mechanism.appearance import body_frames, matrices
from jaxmbd._view.scene import Extent, toward, tube
from jaxmbd._view.solids import Link, bar, body_solids, supports, symbols

INERTIA = mbd.Inertia.box(size=[0.6, 0.4, 0.2], mass=2.0)
DOWN = np.array([0.0, 0.0, -1.0])
# The corners of a wedge, of volume 1/2.
WEDGE = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]])


def shown(shape, other=None):
    """The solids of a body with this shape over other ground."""
    body = mbd.Body("body", INERTIA, position=[0.0, 0.0, 1.0])
    ground = mbd.HalfSpace() if other is None else other
    contact = mbd.Contact("contact", body, "ground", shape, ground, law=mbd.ContactLaw())
    return body_solids(mbd.Mechanism([body], contacts=[contact]), (), 0.1)


@pytest.mark.parametrize(
    "shape, kind, size",
    [
        (mbd.Sphere(0.3), "sphere", (0.3,)),
        (mbd.Box(size=(0.2, 0.4, 0.6)), "box", (0.1, 0.2, 0.3)),
        (mbd.Capsule(radius=0.1, length=0.8), "capsule", (0.1, 0.4)),
        (mbd.Cylinder(radius=0.1, length=0.8), "cylinder", (0.1, 0.4)),
        (mbd.shapes.Ellipsoid(semiaxes=(0.1, 0.2, 0.3)), "ellipsoid", (0.1, 0.2, 0.3)),
    ],
    ids=lambda x: type(x).__name__,
)
def test_contact_shapes(shape, kind, size):
    solid, ground = shown(shape)
    assert (solid.body, solid.kind) == ("body", kind)
    np.testing.assert_allclose(solid.size, size)
    assert (ground.body, ground.kind) == ("ground", "plane")


def volume(vertices, faces):
    a, b, c = np.moveaxis(vertices[faces].astype(float), 1, 0)
    return np.sum(np.einsum("ij,ij->i", a, np.cross(b, c))) / 6


def test_triangles_of_convex_points_enclose_their_volume():
    solid = shown(mbd.shapes.ConvexPoints(WEDGE))[0]
    assert abs(volume(solid.vertices, solid.faces)) == pytest.approx(0.5)


def test_height_fields_divide_their_cells_as_contacts_do():
    heights = np.array([[0.0, 0.1, 0.3], [0.2, 0.5, 0.4]])
    _, ground = shown(mbd.Sphere(0.1), mbd.shapes.HeightField(heights, (1.0, 2.0)))
    assert ground.vertices[4].tolist() == [0.5, 0.0, 0.5]
    assert len(ground.faces) == 4 and [0, 3, 4] in ground.faces.tolist()


def test_a_body_alone_is_the_box_with_its_inertia():
    (solid,) = body_solids(mbd.Mechanism([mbd.Body("body", INERTIA)]), (), 0.01)
    R = matrices(solid.orientation)
    np.testing.assert_allclose(np.abs(R) @ solid.size, [0.3, 0.2, 0.1])


@pytest.mark.parametrize("direction", [(0, 0, -1), (0.36, -0.48, -0.8)])
def test_a_bar_lies_between_its_ends(direction):
    a = np.array([0.1, 0.2, 0.3])
    b = a + 2 * np.array(direction)
    solid = bar("body", "body", a, b, 0.01, (0.0, 0.0, 0.0, 1.0))
    half = solid.size[1] * matrices(solid.orientation)[:, 2]
    np.testing.assert_allclose([solid.position - half, solid.position + half], [a, b], atol=1e-12)
    assert np.all(np.isfinite(toward(a, a)))


def test_a_tube_stretches_with_its_bones():
    """Skinning with both bones upright and 5 m apart, by its definition."""
    template = np.array([[0.0, 0, 0], [0.25, 0.3, 0.4], [0.5, -0.3, 0.1], [1, 0, 0]])
    vertices, faces, weights = tube(template, 1.0, 0.02)
    assert faces.max() == len(vertices) - 1
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    moved = (vertices + weights[:, 1:] * [0.0, 0, 4]).reshape(4, -1, 3)
    middles = moved.mean(axis=1)
    np.testing.assert_allclose(middles, template[:, [1, 2, 0]] * [1, 1, 5], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(moved - middles[:, None], axis=2), 0.02, rtol=1e-4)


def test_symbols_are_fixed_to_the_frames_of_joints():
    a, b = mbd.Body("a", INERTIA), mbd.Body("b", INERTIA, position=[1.0, 0, 0])
    at, tilted = dict(point=[0.5, 0.2, 0.0]), dict(axis=[0.0, 0.6, 0.8])
    kinds = (mbd.Revolute, mbd.Prismatic, mbd.Cylindrical, mbd.Planar, mbd.joints.PointOnLine)
    joints = [kind(kind.__name__, a, b, **at, **tilted) for kind in kinds]
    joints += [mbd.Fixed("Fixed", a, b, **at), mbd.Spherical("Spherical", "ground", b, **at)]
    joints.append(mbd.Distance("Distance", a, b, points=[[0, 0, 0], [1, 0, 0]], length=1.0))
    spring = mbd.Spring("spring", a, b, points=[[0, 0, 0], [1, 0, 0]], rest_length=0.5)
    motor = mbd.Motor("motor", a, b, **at, **tilted)
    mechanism = mbd.Mechanism([a, b], joints, [spring, motor])
    frames = body_frames(mechanism, np.asarray(mechanism.state().q)[None])
    found = symbols((*mechanism.joints, *mechanism.forces), frames, 0.1)
    assert {x.name for x in found} == {*(j.name for j in joints), "spring", "motor"}
    assert {x.name for x in found if isinstance(x, Link)} == {"Distance", "spring"}
    (pin,) = (x for x in found if x.name == "Revolute")
    axis = matrices(pin.orientation)[:, 2]
    np.testing.assert_allclose(abs(axis @ [0, 0.6, 0.8]), 1)
    np.testing.assert_allclose(frames[pin.body].at(pin.position)[0, 0], at["point"])
    (support,) = supports(mechanism, 0.1, DOWN)
    np.testing.assert_allclose(support.position + support.vertices[0], at["point"])  # the tip


def test_the_camera_is_not_drawn_away_by_what_flies_off():
    bodies = [mbd.Body(name, INERTIA, position=[x, 0, 0]) for name, x in (("a", 0), ("b", 1))]
    mechanism = mbd.Mechanism(bodies)
    q = np.tile(np.asarray(mechanism.state().q), (3, 1))
    q[:, 0] = [0.0, 0.5, 1e6]
    extent = Extent([(mechanism, q)])
    np.testing.assert_allclose([extent.low[0], extent.high[0]], [0, 1])


def test_the_first_camera_sees_the_whole_robot():
    """A long shape that is far from its centre of mass and swings, also in a square window: every
    corner is within the field of view."""
    tall = np.array([[x, y, z] for x in (-0.1, 0.1) for y in (-0.1, 0.1) for z in (0.0, 3.0)])
    visual = mbd.io.Visual(
        "arm", "arm", "mesh", (), tall, np.zeros((0, 3), int), np.zeros(3), np.eye(4)[0],
        (1.0, 0.0, 0.0, 1.0), 0,
    )  # fmt: skip
    mechanism = mbd.Mechanism([mbd.Body("arm", INERTIA)])
    q = np.stack(2 * [np.asarray(mechanism.state().q)])
    q[1, 3:] = [np.cos(0.65), np.sin(0.65), 0.0, 0.0]
    extent = Extent([(mechanism, q)])
    extent.include(mechanism, q, (visual,))
    camera = types.SimpleNamespace()
    extent.aim(types.SimpleNamespace(initial_camera=camera))
    ahead = np.subtract(camera.look_at, camera.position)
    assert np.linalg.norm(ahead) < 20
    seen = body_frames(mechanism, q)["arm"].at(tall).reshape(-1, 3) - camera.position
    right = np.cross(ahead, camera.up)
    for aside in (right, np.cross(right, ahead)):
        sideways = np.abs(seen @ aside) / np.linalg.norm(aside)
        angles = np.arctan2(sideways, seen @ ahead / np.linalg.norm(ahead))
        assert angles.max() < camera.fov / 2
