"""Inertias of links in SDFormat: by default, and automatic ones of their shapes."""

import numpy as np
import pytest
from refusals import check_refused
from sdf_files import collision, sdf

import jaxmbd as mbd

BOX = "<box><size>0.2 0.4 0.2</size></box>"
BALL = "<sphere><radius>0.1</radius></sphere>"


def inertia(load, inertial, collisions):
    """The inertia of a link, and what is told."""
    text = sdf(f'<link name="a">{inertial}{collisions}</link>', "1.12")
    found = load(text, contacts=False)
    return found.mechanism.body("a").inertia, found.dropped


def test_the_default_is_a_kilogram(load):
    with pytest.warns(UserWarning, match="no counterpart"):
        found, dropped = inertia(load, "", collision(BOX))
    assert float(found.mass) == 1.0 and len(dropped) == 1
    np.testing.assert_array_equal(found.tensor, np.eye(3))
    # With an <inertial>, the format gives the same numbers and no reason to tell.
    found, dropped = inertia(load, "<inertial/>", "")
    assert float(found.mass) == 1.0 and not dropped
    np.testing.assert_array_equal(found.tensor, np.eye(3))


def test_automatic_inertia_of_a_box(load):
    """0.016 m^3 of water; its own <inertia> and <pose> do not count."""
    given = (
        '<inertial auto="true"><pose>1 0 0 0 0 0</pose><inertia><ixx>9</ixx></inertia></inertial>'
    )
    found, dropped = inertia(load, given, collision(BOX))
    assert not dropped
    np.testing.assert_allclose(found.mass, 16.0)
    np.testing.assert_allclose(found.center, 0.0, atol=1e-15)
    np.testing.assert_allclose(
        found.tensor, 16 / 12 * np.diag([0.16 + 0.04, 0.04 + 0.04, 0.04 + 0.16]), atol=1e-14
    )


def test_densities_and_the_mass_that_is_given(load):
    """The density of a collision comes before the one of the link, before 1000 kg/m^3. The mass
    scales all."""
    half = "<density>500</density>"
    for inertial, inside, mass in (
        (half, "", 8.0),
        ("", half, 8.0),
        ("<density>7</density>", half, 8.0),
        (f"<mass>4</mass>{half}", "", 4.0),
    ):
        text = f'<inertial auto="1">{inertial}</inertial>'
        found, _ = inertia(load, text, collision(BOX, inside))
        np.testing.assert_allclose(found.mass, mass, rtol=1e-12)
        np.testing.assert_allclose(np.asarray(found.tensor)[0, 0], mass / 12 * 0.2, rtol=1e-12)


def test_automatic_inertia_of_two_shapes(load):
    """A box that is turned about x, and a lighter ball, both beside the origin: the integrals over
    the solids, by the theorem of Huygens and Steiner written out."""
    shapes = collision(BOX, "<pose>0.1 0 0.2 1.5707963267948966 0 0</pose>", "box")
    shapes += collision(BALL, "<pose>-0.3 0 0 0 0 0</pose><density>300</density>", "ball")
    found, dropped = inertia(load, '<inertial auto="true"/>', shapes)
    m = np.array([16.0, 300 * 4 / 3 * np.pi * 1e-3])
    r = np.array([[0.1, 0, 0.2], [-0.3, 0, 0]])
    # The quarter turn swaps the moments about y and z.
    own = [16 / 12 * np.diag([0.2, 0.2, 0.08]), 0.4 * m[1] * 0.01 * np.eye(3)]
    center = m @ r / m.sum()
    tensor = sum(
        part + mass * ((d @ d) * np.eye(3) - np.outer(d, d))
        for part, mass, d in zip(own, m, r - center, strict=True)
    )
    np.testing.assert_allclose(found.mass, m.sum())
    np.testing.assert_allclose(found.center, center, atol=1e-15)
    np.testing.assert_allclose(found.tensor, tensor, atol=1e-14)
    assert not dropped


SOLIDS = {
    "sphere": ("<radius>0.3</radius>", lambda x, y, z: x * x + y * y + z * z < 0.09),
    "cylinder": (
        "<radius>0.3</radius><length>0.5</length>",
        lambda x, y, z: (x * x + y * y < 0.09) & (abs(z) < 0.25),
    ),
    "capsule": (
        "<radius>0.2</radius><length>0.4</length>",
        lambda x, y, z: x * x + y * y + np.maximum(abs(z) - 0.2, 0) ** 2 < 0.04,
    ),
    "cone": (
        "<radius>0.3</radius><length>0.8</length>",
        lambda x, y, z: (x * x + y * y < (0.3 * (0.4 - z) / 0.8) ** 2) & (abs(z) < 0.4),
    ),
    "ellipsoid": (
        "<radii>0.1 0.2 0.3</radii>",
        lambda x, y, z: (x / 0.1) ** 2 + (y / 0.2) ** 2 + (z / 0.3) ** 2 < 1,
    ),
}


@pytest.mark.parametrize("kind", SOLIDS)
def test_automatic_inertia_is_the_integral_over_the_solid(kind, load):
    """By the points of a grid, whose error is below 0.5 % at 128 points an edge; of moments below
    1 %. A wrong factor or length is far beyond."""
    size, inside = SOLIDS[kind]
    shape = f"<{kind}>{size}</{kind}>"
    found, _ = inertia(load, '<inertial auto="true"/>', collision(shape))
    edge = (np.arange(128) + 0.5) / 128 - 0.5
    x, y, z = np.meshgrid(0.6 * edge, 0.6 * edge, 0.8 * edge, indexing="ij")
    there = inside(x, y, z)
    points = np.stack([x[there], y[there], z[there]], axis=-1)
    part = 1000 * 0.6 * 0.6 * 0.8 / 128**3
    center = points.mean(axis=0)
    d = points - center
    tensor = part * ((d * d).sum() * np.eye(3) - d.T @ d)
    np.testing.assert_allclose(found.mass, part * len(points), rtol=5e-3)
    np.testing.assert_allclose(found.center, center, atol=1e-3)
    np.testing.assert_allclose(found.tensor, tensor, rtol=1e-2, atol=1e-2 * tensor.max())


def test_what_has_no_automatic_inertia_is_told(load):
    """Meshes and planes add nothing; without any solid the format's default remains."""
    mesh = collision("<mesh><uri>part.dae</uri></mesh>", name="part")
    auto = '<inertial auto="true"/>'
    with pytest.warns(UserWarning, match="adds nothing to the automatic inertia.*<mesh>"):
        found, dropped = inertia(load, auto, collision(BOX) + mesh)
    np.testing.assert_allclose(found.mass, 16.0)
    assert 'collision "a::part"' in dropped[0]
    with pytest.warns(UserWarning, match="automatic without a shape.*1 kg m.2.*mass 1 kg"):
        found, _ = inertia(load, auto, "")
    np.testing.assert_array_equal(found.tensor, np.eye(3))
    bad = collision("<sphere><radius>-1</radius></sphere>")
    check_refused(lambda: inertia(load, auto, bad), "line 1: the <geometry><sphere> of the .*-1")
    none = collision(BOX, "<density>0</density>")
    check_refused(lambda: inertia(load, auto, none), "<box> of the .*density.*0")


def test_added_mass_is_told(load):
    added = "<inertial><fluid_added_mass><xx>2</xx><yy>0</yy></fluid_added_mass></inertial>"
    with pytest.warns(UserWarning, match="no counterpart"):
        _, dropped = inertia(load, added, "")
    assert dropped == ('link "a" (line 1): <inertial><fluid_added_mass><xx> 2 is not read',)


def test_shapes_to_draw(load):
    """Colours of three numbers are opaque; a cone is drawn as a mesh with its volume."""
    paint = "<material><diffuse>1 0 0{alpha}</diffuse></material>{more}"
    seen = '<visual name="v"><geometry>{shape}</geometry>{paint}</visual>'
    for alpha, more, opacity in (
        ("", "", 1.0),
        (" 0.5", "", 0.5),
        (" 0.5", "<transparency>0.2</transparency>", 0.4),
    ):
        part = seen.format(shape=BOX, paint=paint.format(alpha=alpha, more=more))
        text = sdf(f'<link name="a"><inertial/>{part}</link>')
        (visual,) = load(text).visuals
        np.testing.assert_allclose(visual.rgba, (1, 0, 0, opacity))
    cone = seen.format(shape="<cone><radius>0.3</radius><length>0.8</length></cone>", paint="")
    plane = seen.format(shape="<plane><normal>1 0 0</normal><size>4 2</size></plane>", paint="")
    text = sdf(f'<link name="a"><inertial/>{cone}{plane}</link>')
    cone, plane = load(text).visuals
    assert cone.vertices is not None
    a, b, c = np.moveaxis(cone.vertices[cone.faces], 1, 0)
    volume = np.einsum("ni,ni->n", a, np.cross(b, c)).sum() / 6
    np.testing.assert_allclose(volume, np.pi * 0.09 * 0.8 / 3, rtol=1e-2)
    assert plane.kind == "plane" and plane.size == (2.0, 1.0)
    z = mbd.Pose(plane.position, plane.orientation).direction(np.array([0.0, 0.0, 1.0]))
    np.testing.assert_allclose(z, [1, 0, 0], atol=1e-15)
