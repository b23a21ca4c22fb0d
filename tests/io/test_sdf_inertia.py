"""Inertias of links in SDFormat: by default, and automatic ones of their shapes."""

import jax
import numpy as np
import pytest
from refusals import check_refused
from sdf_files import collision, link, sdf

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


def test_densities_and_the_mass_that_is_given(load):
    """The density of a collision comes before the one of the link, before 1000 kg/m^3. The mass
    scales all. An <inertia> and a <pose> do not count."""
    half = "<density>500</density>"
    for inertial, inside, mass in (
        (half, "", 8.0),
        ("", half, 8.0),
        ("<density>7</density>", half, 8.0),
        (f"<mass>4</mass>{half}", "", 4.0),
        ("<pose>1 0 0 0 0 0</pose><inertia><ixx>9</ixx></inertia>", "", 16.0),
    ):
        text = f'<inertial auto="1">{inertial}</inertial>'
        found, _ = inertia(load, text, collision(BOX, inside))
        np.testing.assert_allclose(found.mass, mass, rtol=1e-12)
        np.testing.assert_allclose(np.asarray(found.tensor)[0, 0], mass / 12 * 0.2, rtol=1e-12)
        np.testing.assert_allclose(found.center, 0.0, atol=1e-15)


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


WIDE, LONG = "<radius>0.3</radius>", "<radius>0.3</radius><length>0.5</length>"
RHO, CONE = dict(density=1000.0), 15 * np.pi
MOMENTS = 3 / 80 * (4 * 0.3**2 + np.array([0.5**2, 0.5**2, 4 * 0.3**2]))


@pytest.mark.parametrize(
    "kind, size, expected",
    [
        ("sphere", WIDE, mbd.Inertia.sphere(radius=0.3, **RHO)),
        ("cylinder", LONG, mbd.Inertia.cylinder(radius=0.3, length=0.5, **RHO)),
        ("capsule", LONG, mbd.Inertia.capsule(radius=0.3, length=0.5, **RHO)),
        ("ellipsoid", "<radii>1 2 3</radii>", mbd.Inertia.ellipsoid(semiaxes=[1, 2, 3], **RHO)),
        # With its centre of mass at a quarter of its height.
        ("cone", LONG, mbd.Inertia(CONE, CONE * MOMENTS, [0, 0, -0.5 / 4])),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_automatic_inertia_of_solids(kind, size, expected, load):
    found, _ = inertia(load, '<inertial auto="true"/>', collision(f"<{kind}>{size}</{kind}>"))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


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


def test_shapes_to_draw(load):
    """Colours of three numbers are opaque; a cone is drawn as a mesh with its volume."""
    paint = "<material><diffuse>1 0 0{}</diffuse></material>{}"
    seen = '<visual name="v"><geometry>{}</geometry>{}</visual>'
    parts = [
        seen.format(BOX, paint.format("", "")),
        seen.format(BOX, paint.format(" 0.5", "<transparency>0.2</transparency>")),
        seen.format("<cone><radius>0.3</radius><length>0.8</length></cone>", ""),
        seen.format("<plane><normal>1 0 0</normal><size>4 2</size></plane>", ""),
    ]
    opaque, clear, cone, plane = load(sdf(link(inside="".join(parts)))).visuals[1:]
    np.testing.assert_allclose([opaque.rgba, clear.rgba], [(1, 0, 0, 1), (1, 0, 0, 0.4)])
    a, b, c = np.moveaxis(cone.vertices[cone.faces], 1, 0)
    volume = np.einsum("ni,ni->n", a, np.cross(b, c)).sum() / 6
    np.testing.assert_allclose(volume, np.pi * 0.09 * 0.8 / 3, rtol=1e-2)
    assert plane.kind == "plane" and plane.size == (2.0, 1.0)
    z = mbd.Pose(plane.position, plane.orientation).direction(np.array([0.0, 0.0, 1.0]))
    np.testing.assert_allclose(z, [1, 0, 0], atol=1e-15)
