"""Pictures of mechanisms: what is drawn where, and animations and plots of motions."""

import sys

import jax
import numpy as np
import pytest
from refusals import check_refused

import jaxmbd as mbd
from jaxmbd._compiler import to_jax

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.3)
X, Y, Z = np.eye(3)
IDENTITY = mbd.Pose(np.zeros(3), np.array([1.0, 0, 0, 0]))


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def crane():
    """A sliding trolley, a hook on a hinge, and a spring, in the plane of x and z."""
    trolley = mbd.Body("trolley", BOX, position=[1, 0, 2])
    hook = mbd.Body("hook", BOX, position=[1.3, 0, 1.6])
    joints = [
        mbd.Prismatic("rail", "ground", trolley, point=[1, 0, 2], axis=X),
        mbd.Revolute("hinge", trolley, hook, point=[1, 0, 2], axis=Y),
    ]
    spring = mbd.Spring("spring", "ground", hook, points=([0, 0, 1], [1.6, 0, 1.2]), stiffness=1.0,
                        rest_length=0.1)  # fmt: skip
    return mbd.Mechanism([trolley, hook], joints, [spring])


def motion(mechanism, t, shift):
    """A made-up solution: all bodies move by `shift` in a second."""
    state, t = mechanism.state(), np.asarray(t)
    q, v = np.tile(state.q, (len(t), 1)), np.tile(state.v, (len(t), 1))
    q.reshape(len(t), 7, -1)[:, :3] += (t[:, None] * shift)[:, :, None]
    v.reshape(len(t), 6, -1)[:, :3] += np.array(shift)[:, None]
    lam = np.tile(np.arange(float(mechanism.row_count)), (len(t), 1))
    arrays = map(to_jax, (t, q, v, lam, 0 * t, 0 * t))
    return mbd.Solution(*arrays, None, {}, mbd.RESULTS.successful)


def is_drawn(ax, start, end):
    """As a line of two points."""
    in_space = hasattr(ax, "get_zlim")
    lines = [np.transpose(x.get_data_3d() if in_space else x.get_data()) for x in ax.lines]
    return any(len(x) == 2 and np.allclose(x, [start, end], atol=1e-12) for x in lines)


def test_bars_are_where_the_bodies_are():
    mechanism = crane()
    ax = mbd.plots.draw(mechanism, plane="xz")
    assert is_drawn(ax, [1.3, 1.6], [1.0, 2.0])  # from the centre of mass to the hinge
    assert is_drawn(ax, [1.3, 1.6], [1.6, 1.2])  # and to the spring
    lines = [np.transpose(line.get_data()) for line in ax.lines]
    (spring,) = (x for x in lines if len(x) > 10 and np.allclose(x[0], [0, 1]))
    np.testing.assert_allclose(spring[-1], [1.6, 1.2], atol=1e-12)
    assert {text.get_text() for text in ax.texts} == {"trolley", "hook"}
    assert ax.get_xlabel() == "x [m]" and ax.get_ylabel() == "z [m]"
    # The hinge is a circle around its place, seen along its axis.
    circles = [p.get_xy() for p in ax.patches if len(p.get_xy()) > 20]
    assert any(np.allclose(x.min(0) + x.max(0), [2, 4], atol=1e-12) for x in circles)


def test_other_views():
    """Seen from the direction of a moved body, at another pose; and in perspective."""
    mechanism = crane()
    sol = motion(mechanism, [0.0, 1.0], [0.0, 0.5, 0.25])
    ax = mbd.plots.draw(mechanism, sol.state().q, plane=([0, 0, 1], [0, 1, 0]), labels=False)
    assert is_drawn(ax, [1.85, 0.5], [2.25, 0.5]) and not ax.texts
    ax = mbd.plots.draw(mechanism, sol.state().q)
    assert is_drawn(ax, [1.3, 0.5, 1.85], [1.0, 0.5, 2.25])
    shown = mbd.plots.animate(mechanism, sol, fps=4)
    shown._func(2)
    assert is_drawn(shown._fig.axes[0], [1.3, 0.25, 1.725], [1.0, 0.25, 2.125])


@pytest.mark.parametrize("plane", [None, "xy"])
def test_every_joint_has_a_symbol(plane):
    """More is drawn with the joint than without; also a single body without extent."""
    at = dict(frame_a=IDENTITY, frame_b=IDENTITY)
    apart = dict(frame_a=IDENTITY, frame_b=mbd.Pose(np.ones(3), IDENTITY.orientation))
    kinds = [mbd.Fixed, mbd.Spherical, mbd.Revolute, mbd.Prismatic, mbd.Cylindrical, mbd.Universal,
             mbd.Planar, mbd.joints.PointOnLine, mbd.joints.PointOnPlane]  # fmt: skip
    joints = [
        mbd.Screw("screw", "ground", "b", pitch=0.1, **at),
        mbd.Distance("distance", "ground", "b", length=1.0, **apart),
        *(kind(kind.__name__, "ground", "b", **at) for kind in kinds),
    ]
    body = mbd.Body("b", BOX)
    ax = mbd.plots.draw(mbd.Mechanism([body]), plane=plane)

    def added(joints):
        before = len(ax.get_children())
        mbd.plots.draw(mbd.Mechanism([body], joints), plane=plane, ax=ax)
        return len(ax.get_children()) - before

    least = added([])
    assert [joint.name for joint in joints if added([joint]) <= least] == []
    ax.figure.canvas.draw()


def test_a_joint_of_a_user_chooses_its_glyph():
    class Hinge(mbd.Revolute):
        glyphs = (mbd.plots.Glyph.BLOCK,)

    at, body = dict(frame_a=IDENTITY, frame_b=IDENTITY), mbd.Body("b", BOX)
    blocks, pins = (
        mbd.plots.draw(mbd.Mechanism([body], [joint]), plane="xy").patches
        for joint in (Hinge("j", "ground", "b", **at), mbd.Revolute("j", "ground", "b", **at))
    )
    assert len(blocks) == len(pins) + 5  # six faces for one disc


def test_animation(tmp_path):
    """A second at 4 pictures per second, in half speed: 9 of them, each where it is."""
    from PIL import Image

    mechanism = crane()
    sol = motion(mechanism, [0.0, 0.4, 1.0], [1.0, 0, 0])
    path = tmp_path / "crane.gif"
    shown = mbd.plots.animate(mechanism, sol, path, 4, speed=0.5, plane="xz", progress=False)
    with Image.open(path) as image:
        assert image.n_frames == 9 and image.info["duration"] == 250
    shown._func(4)  # t = 0.5
    ax = shown._fig.axes[0]
    assert is_drawn(ax, [1.8, 1.6], [1.5, 2.0])
    assert ax.get_title(loc="left") == "t = 0.50 s"


def test_plots():
    mechanism = crane()
    sol = motion(mechanism, [0.0, 0.5, 1.0], [1.0, 0, 0])
    displacement, angle = mbd.plots.coordinates(mechanism, sol)
    np.testing.assert_allclose(displacement.lines[0].get_ydata(), [0, 0.5, 1], atol=1e-12)
    assert displacement.get_ylabel() == "displacement [m]" and angle.get_ylabel() == "angle [rad]"
    assert angle.get_xlabel() == "t [s]"
    assert [text.get_text() for text in angle.get_legend().get_texts()] == ["hinge"]
    force, torque = mbd.plots.reactions(mechanism, sol, "hinge", on="trolley")
    wrench = jax.device_get(mbd.reports.reactions(mechanism, sol, "hinge", on="trolley"))
    for axes, values in ((force, wrench.force), (torque, wrench.torque)):
        for i in range(3):
            np.testing.assert_allclose(axes.lines[i].get_ydata(), values[:, i])
        assert "[N" in axes.get_ylabel()
    position, velocity = mbd.plots.violation(mechanism, sol)
    assert position.get_yscale() == "log" and len(velocity.lines) == 2
    audit = mbd.reports.audit(mechanism, sol)
    energies = mbd.plots.energies(audit)
    assert energies.get_ylabel() == "energy [J]"
    np.testing.assert_allclose(energies.lines[-1].get_ydata(), audit.total)


def test_what_pictures_refuse(tmp_path):
    mechanism = crane()
    sol = motion(mechanism, [0.0, 1.0], [0, 1.0, 0])
    batch = jax.tree.map(lambda x: np.stack([x, x]) if hasattr(x, "ndim") else x, sol)
    traced = jax.jit(lambda q: mbd.plots.draw(mechanism, q) and q)
    for call, words in (
        (lambda: mbd.plots.draw(mechanism, plane="xq"), "`plane`.* must be two of the letters"),
        (lambda: mbd.plots.draw(mechanism, ax=plt.figure().add_subplot()), "must be 3D axes"),
        (lambda: mbd.plots.animate(mechanism, batch), "Pictures show one motion"),
        (lambda: mbd.plots.animate(mechanism, sol, tmp_path / "a.avi"), "end in .gif or .mp4"),
        (lambda: traced(np.zeros(14)), "outside of `jax.jit`"),
        (lambda: mbd.plots.coordinates(mechanism, sol, []), "No joint of this mechanism has"),
    ):
        check_refused(call, words)


def test_without_matplotlib(monkeypatch):
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install jaxmbd\[viz\]"):
        mbd.plots.draw(crane())
