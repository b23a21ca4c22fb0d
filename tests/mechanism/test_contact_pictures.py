"""Reports and pictures of contacts: forces, what sticks and slips, and what is drawn where."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collision_pairs import extent
from refusals import check_refused

import jaxmbd as mbd

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


from jaxmbd._mechanism.appearance import (  # noqa: E402
    FORCE,
    GROUND_EDGE,
    body_frames,
    hull,
    placed_shapes,
)
from jaxmbd._mechanism.contact_rows import basis  # noqa: E402
from jaxmbd._mechanism.pictures.polylines import View  # noqa: E402
from jaxmbd._mechanism.pictures.shapes import solid  # noqa: E402

OPEN, STICK, SLIP = mbd.reports.ContactState
X, Y, Z = np.eye(3)
WEIGHT, MU, STEP = 2.0 * 9.81, 0.5, 1e-2
INERTIA = mbd.Inertia.box(size=[1.0, 0.8, 0.6], mass=2.0)
BLOCK = mbd.Box(size=(1.0, 0.8, 0.6))
FLAT, SPACE = View(X, Z, -Z, True), View(X, Z, -Z, False)
# An orientation along no axis.
TILTED = np.array([0.9, 0.2, -0.3, 0.25]) / np.linalg.norm([0.9, 0.2, -0.3, 0.25])


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def slope(alpha, **options):
    """A block on a plane that falls by alpha towards x."""
    turn = np.array([np.cos(alpha / 2), 0, np.sin(alpha / 2), 0])
    normal = np.array([np.sin(alpha), 0, np.cos(alpha)])
    block = mbd.Body("block", INERTIA, position=0.3 * normal, orientation=turn)
    plane = mbd.Pose(np.zeros(3), turn)
    floor = mbd.Contact(
        "floor", "ground", block, mbd.HalfSpace(), BLOCK, friction=MU, frame_a=plane
    )
    return mbd.Mechanism([block], contacts=[floor], **options)


def made_up(mechanism, force, v=None, start=0.0):
    """A solution of 21 times that stays where it is, with a given contact force throughout or at
    each of them."""
    state, force = mechanism.state(), np.asarray(force, float)
    shape = (21, *force.shape[-2:])
    t, q, v, force = jax.device_put((
        start + STEP * np.arange(21), np.tile(state.q, (21, 1)),
        np.tile(np.asarray(state.v if v is None else v, float), (21, 1)),
        np.array(np.broadcast_to(force, shape)),
    ))  # fmt: skip
    none = dict.fromkeys(("multipliers", "phi_norm", "phidot_norm", "ys"))
    result = mbd.RESULTS.successful
    return mbd.Solution(t=t, q=q, v=v, contact_force=force, stats={}, result=result, **none)


STUCK, SLIDING = 0.3, 0.7  # slopes below and above the angle of friction


@functools.cache
def motion(alpha):
    """The four corners below share what Coulomb's law says; without balance the block moves."""
    mechanism, (s, c) = slope(alpha), (np.sin(alpha), np.cos(alpha))
    downhill, used = np.array([c, 0, -s]), min(s, MU * c)
    points = jax.jit(lambda q: mechanism.contact_points(q))(mechanism.state().q)
    axes = np.asarray(jax.jit(basis)(points.normal))
    of_each = axes @ (WEIGHT * (c * np.array([s, 0, c]) - used * downhill)) / 4
    force = np.where(np.asarray(points.gap)[:, None] < 0.1, of_each, 0.0)
    return mechanism, made_up(mechanism, force, [*(s - used) * downhill, 0, 0, 0])


def twice(sol):
    """A batch."""
    return jax.tree.map(lambda x: np.stack([x, x]) if eqx.is_array(x) else x, sol)


def ball_on_floor(reverse=False, **coefficients):
    ball = mbd.Body("ball", INERTIA, position=[0, 0, 0.2])
    pair = ("ground", mbd.HalfSpace()), (ball, mbd.Sphere(0.2))
    (a, shape_a), (b, shape_b) = pair[::-1] if reverse else pair
    return mbd.Mechanism(
        [ball], contacts=[mbd.Contact("c", a, b, shape_a, shape_b, **coefficients)]
    )


def test_forces_of_all_points_carry_the_weight():
    """In world axes: the weight at rest, and what Coulomb's law says."""
    s, c = np.sin(SLIDING), np.cos(SLIDING)
    slides = WEIGHT * c * (np.array([s, 0, c]) - MU * np.array([c, 0, -s]))
    for alpha, expected in ((STUCK, WEIGHT * Z), (SLIDING, slides)):
        mechanism, sol = motion(alpha)
        force = np.asarray(mbd.reports.contact_forces(mechanism, sol))
        assert force.shape == (21, 8, 3)
        np.testing.assert_allclose(force.sum(axis=1), np.tile(expected, (21, 1)), atol=1e-5)


LAW = dict(friction=0.5, kinetic=0.3)


@pytest.mark.parametrize(
    "law, v, force, state, share",
    [
        (LAW, [1.0, 0, 0, 0, 0, 0], [2.0, -0.6, 0.0], SLIP, 0.6),
        (LAW, [1.0, 0, 0, 0, 0, 0], [2.0, 0.0, 0.3], STICK, 0.3),  # it rolls
        (LAW, [1.0, 0, 0, 0, 0, 0], [0.0, 0.0, 0.0], OPEN, 0.0),
        (LAW, [0.2, 0, 0, 0, 1, 0], [2.0, -0.6, 0.0], STICK, 0.6),  # without slipping
        ({}, [1.0, 0, 0, 0, 0, 0], [2.0], SLIP, 0.0),
    ],
)
def test_states_of_one_point(law, v, force, state, share):
    """The share is of the static coefficient; what moves with less friction than when sliding
    rolls."""
    mechanism = ball_on_floor(**law)
    states = mbd.reports.contact_states(mechanism, made_up(mechanism, [force], v))
    np.testing.assert_array_equal(states.state, state)
    np.testing.assert_allclose(states.share, share, rtol=1e-12)
    np.testing.assert_allclose(states.speed, v[0] - 0.2 * v[4], rtol=1e-12, atol=1e-15)


def test_speeds_are_those_of_all_points():
    """Although a step knows the nearest ones alone."""
    v, mechanism = [0.3, -0.2, 0.1, 1.0, 2.0, 3.0], slope(0.3)
    velocities = jax.jit(lambda q, v: mechanism.contact_rows(0.0, q).velocities(v))
    rows = np.asarray(velocities(mechanism.state().q, np.array(v)))
    few = slope(0.3, contact_budget=3)
    speed = mbd.reports.contact_states(few, made_up(few, np.zeros((8, 3)), v)).speed
    np.testing.assert_allclose(
        np.asarray(speed)[0], np.linalg.norm(rows[:, 1:], axis=1), rtol=1e-12
    )


def test_batches_and_gradients_of_reports():
    mechanism, sol = motion(STUCK)
    one, two = (mbd.reports.contact_states(mechanism, x) for x in (sol, twice(sol)))
    for x, y in zip(one, two, strict=True):
        np.testing.assert_array_equal(y, np.stack([x, x]))

    def total(v):
        resting = eqx.tree_at(lambda sol: sol.v, sol, v)
        states = mbd.reports.contact_states(mechanism, resting)
        return jnp.sum(states.speed) + jnp.sum(states.share)

    assert np.all(np.isfinite(jax.jit(jax.grad(total))(np.zeros(sol.v.shape))))


def test_what_is_refused():
    (mechanism, sol), reports, plots = motion(STUCK), mbd.reports, mbd.plots
    without = eqx.tree_at(lambda sol: sol.contact_force, sol, None)
    for call, words in (
        (lambda: reports.contact_forces(mechanism, sol, np.zeros((21, 5, 3))), r"\(..., 8, 3\)"),
        (lambda: reports.contact_states(mechanism, without), "has no contact forces"),
        (lambda: reports.contact_states(mechanism, eqx.tree_at(lambda sol: sol.q, sol, None)),
         "States were not saved"),
        (lambda: plots.animate(mechanism, sol, plane="xz", force_scale=0.0), "`force_scale`"),
        (lambda: plots.draw(mechanism, contact_force=np.zeros((2, 3))), "`force`.* must have"),
        (lambda: plots.contacts(mechanism, sol, ["ceiling"]), "`names`.* must be of contacts"),
        (lambda: plots.contacts(mechanism, sol, axes=plt.subplots(2)[1]), "`axes`.* must be 3"),
        (lambda: plots.contacts(mechanism, twice(sol)), "Pictures show one motion"),
    ):  # fmt: skip
        check_refused(call, words)


CORNERS = np.array([[0.5, 0, 0], [-0.2, 0.4, 0], [-0.2, -0.4, 0], [0, 0, 0.6]])


def reach(shape, R, i):
    """How far a shape reaches along the world axis i."""
    return extent(jax.tree.map(lambda x: np.asarray(x)[None], shape), R[i][None, None])[0, 0]


SHAPES = [
    mbd.Sphere(0.4),
    BLOCK,
    mbd.Capsule(radius=0.2, length=0.8),
    mbd.Cylinder(radius=0.35, length=0.6),
    mbd.shapes.Disc(0.4),
    mbd.shapes.Ellipsoid(semiaxes=[0.5, 0.3, 0.2]),
    mbd.shapes.ConvexPoints(CORNERS),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: type(shape).__name__)
def test_shapes_have_their_extent(shape):
    center = np.array([1.0, 2.0, 3.0])
    body = mbd.Body("b", INERTIA, position=center, orientation=TILTED)
    contact = mbd.Contact("c", "ground", body, mbd.HalfSpace(), shape)
    mechanism = mbd.Mechanism([body], contacts=[contact])
    R = np.asarray(mbd.rotations.quaternion_to_matrix(TILTED))
    frames = body_frames(mechanism, np.asarray(mechanism.state().q)[None])
    _, place = placed_shapes(mechanism, frames)
    outline = solid(place, "k", FLAT)[0].points[0]
    for i in (0, 2):  # directions of the picture are exact
        np.testing.assert_allclose(np.max(outline[:, i]) - center[i], reach(shape, R, i), rtol=1e-9)
    faces, *edges = (stroke.points[0] for stroke in solid(place, "k", SPACE))
    for i in range(3):  # round ones have facets
        assert abs(np.nanmax(faces[:, i]) - center[i] - reach(shape, R, i)) < 0.02
        assert np.nanmax(edges[0][:, i]) - center[i] < reach(shape, R, i) + 1e-9
    for plane in ("xy", None):
        mbd.plots.draw(mechanism, plane=plane).figure.canvas.draw()


def test_faces_of_convex_points():
    """Triangles of one plane are one face, points inside none; also of a plate and a rod."""
    cube = np.array(list(np.ndindex(2, 2, 2)), float)
    for points, count in (
        (np.concatenate([cube, [[0.4, 0.5, 0.6]]]), [4] * 6),
        (cube[cube[:, 2] == 0], [4]),
        (np.array([[0, 0, 0], [0, 0, 1.0], [0, 0, 0.3]]), [2]),
    ):
        assert [len(face) for face in hull(mbd.shapes.ConvexPoints(points))] == count


def test_shapes_take_the_place_of_the_box_of_inertia_once():
    block = mbd.Body("block", INERTIA, position=[0, 0, 1])
    wall = mbd.Pose(np.array([2.0, 0, 0]), np.array([np.sqrt(0.5), 0, -np.sqrt(0.5), 0]))
    contacts = [
        mbd.Contact("floor", "ground", block, mbd.HalfSpace(), BLOCK),
        mbd.Contact("wall", "ground", block, mbd.HalfSpace(), BLOCK, frame_a=wall),
    ]
    ax = mbd.plots.draw(mbd.Mechanism([block], contacts=contacts), plane="xz")
    (outline,) = ax.patches
    bounds = outline.get_path().get_extents().bounds
    np.testing.assert_allclose(bounds, [-0.5, 0.7, 1.0, 0.6], atol=1e-12)
    # The ground as lines that reach each other, with hatches below, or behind.
    ground = [line for line in ax.lines if line.get_color() == GROUND_EDGE]
    lines = [np.stack(line.get_data(), axis=1) for line in ground]
    floor = next(x for x in lines if len(x) == 2 and np.allclose(x[:, 1], 0))
    upright = next(x for x in lines if len(x) == 2 and np.allclose(x[:, 0], 2))
    assert np.min(floor[:, 0]) < -0.5 and np.max(floor[:, 0]) > 2
    assert np.min(upright[:, 1]) < 0 and np.max(upright[:, 1]) > 1.3
    below, behind = (x for x in lines if len(x) > 2)
    assert np.nanmax(below[:, 1]) < 1e-12 and np.nanmin(behind[:, 0]) > 2 - 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("count", [50, 51], ids=["few", "many"])
def test_many_bodies_share_artists(count):
    """Each ball is where it was, but those of one colour are drawn as one, without marks."""
    x = np.stack([3.0 * np.arange(count), 0 * np.arange(count), np.sin(np.arange(count))], axis=1)
    balls = [mbd.Body(f"{i}", INERTIA, position=place) for i, place in enumerate(x)]
    pieces = [("ground", mbd.HalfSpace()), *((ball, mbd.Sphere(0.5)) for ball in balls)]
    contacts = mbd.contacts_among(pieces, pair_budget=count)
    mechanism = mbd.Mechanism(balls, contacts=contacts)
    ax = mbd.plots.draw(mechanism, plane="xz")
    polygons = [patch.get_xy() for patch in ax.patches]
    for collection in ax.collections:
        polygons += [path.vertices for path in collection.get_paths()]
    low, high = (np.sort([f(p, axis=0) for p in polygons], axis=0) for f in (np.min, np.max))
    expected = np.sort(x[:, [0, 2]], axis=0)
    np.testing.assert_allclose(low, expected - 0.5, atol=1e-12)
    np.testing.assert_allclose(high, expected + 0.5, atol=1e-12)
    artists = len(ax.patches) + len(ax.collections) + len(ax.lines)
    assert (len(ax.texts), artists) == ((50, 352) if count == 50 else (0, 18))


def test_height_field_is_a_line_or_a_grid():
    heights = np.repeat(np.array([0.0, 0.3, 0.1])[:, None], 4, axis=1)
    ball = mbd.Body("ball", INERTIA, position=[0, 0, 1])
    field = mbd.shapes.HeightField(heights, [0.5, 0.25])
    contact = mbd.Contact("c", "ground", ball, field, mbd.Sphere(0.1))
    mechanism = mbd.Mechanism([ball], contacts=[contact])
    ax = mbd.plots.draw(mechanism, plane="xz")
    lines = [np.stack(line.get_data(), axis=1) for line in ax.lines]
    expected = np.array([[-0.5, 0], [0, 0.3], [0.5, 0.1]])
    assert any(x.shape == (3, 2) and np.allclose(x, expected) for x in lines)
    grid = [np.stack(line.get_data_3d(), axis=1) for line in mbd.plots.draw(mechanism).lines]
    corner = np.array([0.5, -0.375, 0.1])
    assert any(np.any(np.all(np.isclose(x, corner), axis=1)) for x in grid)


def arrows(ax):
    """Tails and tips of the arrows in flat axes."""
    (dots,) = (x for x in ax.lines if x.get_marker() == "o" and x.get_markerfacecolor() == FORCE)
    tails = np.stack(dots.get_data(), axis=1)
    (heads,) = ax.collections
    tips = np.array([path.vertices[1] for path in heads.get_paths()])
    return tails[np.isfinite(tails[:, 0])], tips


def test_arrows_show_the_forces():
    mechanism, sol = motion(SLIDING)
    force = np.asarray(mbd.reports.contact_forces(mechanism, sol))
    points = np.asarray(mechanism.contact_points(sol.q).position)
    loaded = np.linalg.norm(force[10], axis=1) > 1e-6
    force, points = (x[10][loaded][:, [0, 2]] for x in (force, points))
    picture = functools.partial(mbd.plots.animate, mechanism, sol, fps=20, plane="xz")
    shown = picture(force_scale=0.01, progress=False)
    shown._func(2)  # t = 0.1
    tails, tips = arrows(shown._fig.axes[0])
    np.testing.assert_allclose(tails, points, atol=1e-9)
    np.testing.assert_allclose(tips - tails, 0.01 * force, atol=1e-6)
    # By itself the longest one is a quarter of the picture.
    scaled = picture(progress=False)
    scaled._func(2)
    ax = scaled._fig.axes[0]
    tails, tips = arrows(ax)
    size = max(np.ptp(ax.get_xlim()), np.ptp(ax.get_ylim())) / 1.06
    longest = np.max(np.linalg.norm(tips - tails, axis=1))
    np.testing.assert_allclose(longest, size / 4, rtol=1e-3)


def test_arrows_are_means_between_pictures():
    """An impact between two pictures is not lost, and spreads over the time between them. The
    motion begins at 3 s."""
    mechanism = ball_on_floor(friction=0.5)
    force = np.zeros((21, 1, 3))
    force[7, 0, 0] = 30.0
    sol = made_up(mechanism, force, start=3.0)
    shown = mbd.plots.animate(mechanism, sol, fps=20, plane="xz", force_scale=0.1, labels=False)
    for i, length in ((1, None), (2, 0.1 * 30 * STEP / 0.05), (3, None)):
        shown._func(i)
        tails, tips = arrows(shown._fig.axes[0])
        assert len(tails) == len(tips) == (length is not None)
        if length is not None:
            np.testing.assert_allclose(tips - tails, [[0, length]], atol=1e-9)


@pytest.mark.parametrize("reverse", [False, True])
def test_arrows_act_on_what_moves(reverse):
    """On the ball, whether it is body a or b; also in perspective, and where nothing acts."""
    mechanism = ball_on_floor(reverse, friction=0.5)
    force = np.array([[3.0, 0.0, 0.0]])
    q = mechanism.state().q
    tails, tips = arrows(
        mbd.plots.draw(mechanism, plane="xz", contact_force=force, force_scale=0.1)
    )
    np.testing.assert_allclose(tails, [[0, 0]], atol=1e-12)
    np.testing.assert_allclose(tips, [[0, 0.3]], atol=1e-12)
    for given in (force, 0 * force):
        mbd.plots.draw(mechanism, q, contact_force=given).figure.canvas.draw()


def test_plot_of_contacts():
    for alpha, label in ((STUCK, "stick"), (SLIDING, "slip")):
        normal, friction, states = mbd.plots.contacts(*motion(alpha))
        cos = np.cos(alpha)
        np.testing.assert_allclose(normal.lines[0].get_ydata(), WEIGHT * cos, rtol=1e-6)
        size, bound = (line.get_ydata() for line in friction.lines)
        np.testing.assert_allclose(size, min(np.tan(alpha), MU) * WEIGHT * cos, rtol=1e-6)
        np.testing.assert_allclose(bound, MU * WEIGHT * cos, rtol=1e-6)
        assert [text.get_text() for text in states.get_legend().get_texts()] == [label]
        (band,) = states.collections
        times = band.get_paths()[0].get_extents().intervalx
        np.testing.assert_allclose(times, [0.0, 0.2], atol=1e-12)


def test_plot_of_gaps_and_chosen_contacts():
    """Limits of joints have a normal force, and are open or closed."""
    ball = mbd.Body("ball", INERTIA, position=[0, 0, 0.2])
    rail = mbd.Prismatic("rail", "ground", ball, point=[0, 0, 0.2], axis=X, limits=(-1.0, 0.0))
    floor = mbd.Contact("floor", "ground", ball, mbd.HalfSpace(), mbd.Sphere(0.2), friction=0.5)
    mechanism = mbd.Mechanism([ball], [rail], contacts=[mbd.JointLimit(rail), floor])
    force = np.zeros((3, 3))
    force[0], force[2, 0] = [5.0, 3.0, 4.0], 7.0
    sol = made_up(mechanism, force)
    normal, friction, states = mbd.plots.contacts(mechanism, sol)
    values = {line.get_label(): line.get_ydata() for line in normal.lines}
    np.testing.assert_allclose(values["floor"], 5.0)
    np.testing.assert_allclose(values["rail"], 7.0)
    np.testing.assert_allclose(friction.lines[0].get_ydata(), 5.0)
    shown = [text.get_text() for text in states.get_legend().get_texts()]
    assert shown == ["stick", "closed"]
    normal, friction, _ = mbd.plots.contacts(mechanism, sol, ["rail"])
    assert len(normal.lines) == 1 and not friction.lines
