"""Every kind of joint: the poses it admits, its freedoms, rows, coordinates and gradients, against
differences. Bad input is refused."""

import functools
import inspect
from types import SimpleNamespace

import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from joint_kinds import (
    BOX,
    EVERY,
    FRAME,
    KINDS,
    OTHERS,
    TIME,
    UNTURNED,
    WAVE,
    composed,
    exp,
    inverse,
    mechanism_of,
    product,
    random_pose,
    rows_of,
    slide,
    turned,
)
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd import Pose
from jaxmbd._coordinates import body_axes
from jaxmbd._mechanism.joints.pairs import AbstractPair
from jaxmbd._mechanism.pair_rows import NAMES

STEP = 1e-3
SHIFTS = STEP * np.array([1.0, 2.0, 3.0, -1.0, -2.0, -3.0])
MEET = "Serial whose axes meet"
WITH_COORDINATES = [kind.__name__ for kind in KINDS if KINDS[kind][3]] + [MEET]
# Kinds that the default tests differentiate: lower pairs are evaluated together, others of each
# form by one program, with nonholonomic rows, times, four frames, and three bodies.
PAIRS = [kind.__name__ for kind in KINDS if issubclass(kind, AbstractPair)]
QUICK = [*PAIRS, "Revolute on the ground", "Universal on the ground", "Constraint",
         "PrescribedMotion of an angle", "Coupler of angles"]  # fmt: skip
SMOOTH = [*PAIRS, "RollingDisc"]


def slope(samples):
    """First derivative, of sixth order, from the values at `SHIFTS` along the first axis."""
    return np.tensordot([3 / 4, -3 / 20, 1 / 60], samples[:3] - samples[3:], 1) / STEP


def table(x, n):
    return np.asarray(x).reshape(-1, n)


def moved(q, dp):
    """The coordinates of all bodies, displaced by tables of shifts and rotations in world axes."""
    p = [product(exp(w), p) for w, p in zip(dp[3:].T, q[3:].T, strict=True)]
    return np.concatenate([q[:3] + dp[:3], np.transpose(p)])


def admitted(of, q, freedoms):
    """Coordinates where each joint is closed, with these freedoms, and the bodies "a" at rest."""
    q = q.copy()
    for kind, x in freedoms.items():
        joint = of.joint(kind.__name__)
        a, frame_a, frame_b = (
            Pose(*map(np.asarray, pose))
            for pose in (of.body(joint.bodies[0]).pose, joint.frame_a, joint.frame_b)
        )
        b = composed(composed(composed(a, frame_a), KINDS[kind][2](*x)), inverse(frame_b))
        q.ravel()[of.indices(joint.bodies[1]).q] = np.concatenate(b)
    return q


def frames_of(of, q, names):
    """World poses of the frames of joints."""
    ends = {}
    for name in names:
        joint = of.joint(name)
        bodies = [Pose(*np.split(q.ravel()[of.indices(x).q], [3])) for x in joint.bodies]
        own = [Pose(*map(np.asarray, frame)) for frame in joint.frames]
        ends[name] = tuple(map(composed, bodies, own))
    return ends


@functools.cache
def differences_of(names):
    """One joint of each kind: rows and coordinates of all, by one program at many states. From them
    derivatives by differences: of the rows by motions of the bodies at the ends "a", then "b",
    where they are closed and anyhow, and along the motion."""
    of, rng = mechanism_of(names), np.random.default_rng(0)
    n, state = len(of.bodies), of.state()
    measured = [name for name in WITH_COORDINATES if name in names]
    q, v = table(state.q, n), table(state.v, n)
    freedoms = {kind: rng.uniform(-0.9, 0.9, (3, 6 - KINDS[kind][1])) for kind in KINDS}
    held = {kind: x for kind, x in freedoms.items() if kind.__name__ in names}
    closed = [admitted(of, q, {kind: x[i] for kind, x in held.items()}) for i in range(3)]

    @jax.jit
    @jax.vmap
    def values(q, v, t):
        return jnp.concatenate([of.constraint(q, t), of.nonholonomic(q, v, t)])

    def coordinates_at(frames):
        return {name: of.joint(name).coordinates(*frames[name]) for name in measured}

    units = [np.outer(e, np.arange(n) % 2 == end) for end in (0, 1) for e in np.eye(6)]
    samples = [(moved(at, s * x), v, TIME) for at in (q, closed[0]) for s in SHIFTS for x in units]
    samples += [(q, v + x, TIME) for x in units] + [(moved(q, s * v), v, TIME + s) for s in SHIFTS]
    samples += [(x, v, TIME) for x in (q, *closed)]
    qs, vs, ts = (np.reshape(x, (len(samples), -1)) for x in zip(*samples, strict=True))
    rows = np.asarray(values(qs, vs, ts[:, 0]))
    chosen = [frames_of(of, x, measured) for x in (*closed, *(moved(q, s * v) for s in SHIFTS))]
    of_each = jax.jit(jax.vmap(coordinates_at, axis_size=len(chosen)))
    coordinates = jax.device_get(of_each(jax.tree.map(lambda *x: np.stack(x), *chosen)))
    displaced, faster, along = rows[:144].reshape(2, 6, 12, -1), rows[144:156], rows[156:162]
    here = rows[162]
    holonomic = np.arange(len(here)) < eqx.filter_eval_shape(of.constraint, state.q, TIME).size
    bend = np.tensordot([3 / 2, -3 / 20, 1 / 90], along[:3] + along[3:] - 2 * here, 1) / STEP**2
    return SimpleNamespace(
        of=of, at=rows_of(of), freedoms=freedoms, phi=here, closed=rows[163:],
        closed_J=slope(displaced[1]).T,
        J=np.where(holonomic, slope(displaced[0]), faster - here).T,
        velocity=np.where(holonomic, slope(along), here),
        gamma=-np.where(holonomic, bend, slope(along)),
        coordinates={name: x[:3] for name, x in coordinates.items()},
        rates={name: slope(x[3:]) for name, x in coordinates.items()},
    )  # fmt: skip


@pytest.fixture(scope="module")
def every():
    """What the default tests need."""
    kinds = [kind.__name__ for kind in KINDS]
    return differences_of((*kinds, *(name for name in (*QUICK, MEET) if name in OTHERS)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_admits_its_freedoms_and_nothing_else(every, kind):
    name, (_, rows, _, count) = kind.__name__, KINDS[kind]
    at = every.at[name]
    assert every.of.joint(name).rows == rows and len(at) == rows + kind.velocity_rows
    np.testing.assert_allclose(every.closed[:, at[:rows]], 0, atol=1e-12)
    assert np.linalg.matrix_rank(every.closed_J[at[:rows]], tol=1e-8) == rows
    if count:
        found = every.coordinates[name]
        np.testing.assert_allclose(found, every.freedoms[kind][:, :count], atol=1e-12)
    # Both bodies move together freely, also where the joint is open.
    shift, spin = np.array([0.4, -1.1, 0.7]), np.array([1.3, 0.2, -0.8])
    places = [np.asarray(every.of.body(f"{end} of {name}").pose.position) for end in "ab"]
    together = [np.append(shift + np.cross(spin, r), spin) for r in places]
    np.testing.assert_allclose(every.J[at] @ np.concatenate(together), 0, atol=1e-8)


@functools.cache
def derivatives(quick):
    """Of the joints that are `QUICK`, or the others, at the state in which they were given."""
    of = mechanism_of(tuple(name for name in EVERY if (name in QUICK) == quick))
    state = of.state()

    @jax.jit
    def found(q, v):
        rows = of.linearised(TIME, q, v)
        J, product = rows.J.dense(), of.row_map(TIME, q, v)(v)
        return rows._replace(J=J), product, J @ v

    return of, rows_of(of), jax.device_get(found(state.q, state.v))


@pytest.mark.parametrize("name", helpers.slow_unless(lambda name: name in QUICK, EVERY))
def test_rows_are_those_of_differences(every, name):
    """Velocities, Jacobian and right side, where the joint is open, and nothing of other joints."""
    if name not in every.at:
        every = differences_of(tuple(other for other in OTHERS if other not in every.at))
    of, own, (found, product, expected) = derivatives(name in QUICK)
    at, truth = own[name], every.at[name]
    columns = np.concatenate([of.indices(f"{end} of {name}").v for end in "ab"])
    assert len(at) == len(truth) == EVERY[name][1] + EVERY[name][2]
    close = {"rtol": 1e-8, "atol": 1e-8}
    phi = at[: EVERY[name][1]]
    np.testing.assert_allclose(found.phi[phi], every.phi[truth][: len(phi)], atol=1e-13)
    np.testing.assert_allclose(found.J[at][:, columns], every.J[truth], **close)
    assert not np.any(np.delete(found.J[at], columns, axis=1))
    np.testing.assert_allclose(found.velocity[at], every.velocity[truth], **close)
    np.testing.assert_allclose(found.gamma[at], every.gamma[truth], **close)
    np.testing.assert_allclose(product[at], expected[at], atol=1e-12)


def test_rates_of_coordinates_are_those_of_differences(every):
    """In closed form, and by differentiation as for most."""
    names = (MEET, "Spherical", "Cam")
    of = mechanism_of(names)
    q, v = (table(x, len(of.bodies)) for x in (of.state().q, of.state().v))
    frames, twists = frames_of(of, q, names), {}
    for name in names:
        at = [of.indices(x) for x in of.joint(name).bodies]
        places = [q.ravel()[x.position] for x in at]
        linear, angular = ([v.ravel()[getattr(x, k)] for x in at] for k in ("linear", "angular"))
        arms = [pose.position - r for pose, r in zip(frames[name], places, strict=True)]
        moving = [u + np.cross(w, r) for u, w, r in zip(linear, angular, arms, strict=True)]
        twists[name] = tuple(map(mbd.Twist, moving, angular))
    found = jax.jit(lambda f, t: {n: of.joint(n).rates(*f[n], *t[n]) for n in names})(
        frames, twists
    )
    for name in names:
        np.testing.assert_allclose(found[name], every.rates[name], rtol=1e-8, atol=1e-9)


def test_every_kind_is_tested():
    kinds = [x for x in vars(mbd.joints).values() if isinstance(x, type)]
    kinds = {
        x
        for x in kinds
        if issubclass(x, mbd.joints.AbstractConstraint) and not inspect.isabstract(x)
    }
    every = eqx.filter_eval_shape(mechanism_of.__wrapped__, tuple(EVERY))
    assert kinds == {type(joint) for joint in every.joints}
    components = {name for kind in KINDS if issubclass(kind, AbstractPair) for name in kind.holds}
    assert components == set(NAMES)


@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_gradients(quick):
    """Of rates of rows, with respect to every number of each joint, in both modes."""
    of = mechanism_of(tuple(name for name in EVERY if (name in SMOOTH) == quick))
    state, rng = of.state(), np.random.default_rng(3)
    numbers, rest = eqx.partition(of.joints, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, numbers))
    starts = np.cumsum([leaf.size for leaf in leaves])[:-1]
    x = np.concatenate([leaf.ravel() for leaf in leaves])
    direction = rng.normal(size=x.size)

    def unravel(x):
        parts = zip(jnp.split(x, starts), leaves, strict=True)
        return jax.tree.unflatten(structure, [part.reshape(leaf.shape) for part, leaf in parts])

    def values(x):
        changed = mbd.Mechanism(of.bodies, eqx.combine(unravel(x), rest))
        return changed.row_map(TIME, state.q, state.v)(state.v)

    @jax.jit
    def derivatives(x, direction):
        value, along = jax.linearize(values, x)  # what is computed on the way serves both modes
        changes, weights = along(direction), jnp.cos(jnp.arange(value.size, dtype=x.dtype))
        (gradient,) = jax.linear_transpose(along, x)(weights)
        return value, changes, weights * changes, gradient * direction

    _, changes, weighted, gradient = jax.device_get(derivatives(x, direction))
    step = 1e-6
    plus, minus = (derivatives(x + s * direction, direction)[0] for s in (step, -step))
    differences = (np.asarray(plus) - np.asarray(minus)) / (2 * step)
    np.testing.assert_allclose(changes, differences, rtol=1e-5, atol=1e-7)
    # Element by element, since the rows of each depend on its own numbers alone.
    ends = np.cumsum([sum(map(np.size, jax.tree.leaves(element))) for element in numbers])
    own = rows_of(of)
    for joint, part in zip(of.joints, np.split(gradient, ends[:-1]), strict=True):
        np.testing.assert_allclose(
            np.sum(part), np.sum(weighted[own[joint.name]]), rtol=1e-9, atol=1e-11
        )


def test_a_constraint_of_one_number_and_of_a_body_that_comes_twice():
    body, above = mbd.Body("a", BOX), Pose(slide(z=1.0), UNTURNED)
    rise = lambda poses, t: poses[0].position[2] - poses[2].position[2] + t  # noqa: E731
    level = mbd.Constraint("level", [body, "ground", "a"], rise, frames=[None, None, above])
    mechanism = mbd.Mechanism([body], [level])
    q = mechanism.state().q
    np.testing.assert_allclose(eqx.filter_jit(mechanism.constraint)(q, 3.0), [2.0], atol=1e-14)


def test_frames_from_the_world():
    place = np.array([0.1, 0.2, 0.3])
    body = mbd.Body("b", BOX, **random_pose(np.random.default_rng(2))._asdict())
    at = Pose(*map(np.asarray, body.pose))
    for axis in ([0.0, 0, 1], [0, 0, -1], [0.6, 0, -0.8]):
        joint = mbd.Revolute("hinge", "ground", body, point=place, axis=axis)
        for pose, frame in ((FRAME, joint.frame_a), (at, joint.frame_b)):
            world = composed(pose, Pose(*map(np.asarray, frame)))
            np.testing.assert_allclose(world.position, place, atol=1e-14)
            np.testing.assert_allclose(turned(world.orientation, [0, 0, 1.0]), axis, atol=1e-14)


def test_subclasses_of_pairs_keep_their_own_rows():
    class Lifted(mbd.Revolute):
        """A hinge whose origin is held 0.1 m above."""

        def constraint(self, a, b, t):
            return super().constraint(a, b, t) - jnp.array([0.0, 0.0, 0.1, 0.0, 0.0])

    body = mbd.Body("b", BOX)
    of = mbd.Mechanism([body], [Lifted("j", "ground", body, frame_a=FRAME, frame_b=FRAME)])
    rows = jax.jit(lambda q, v: (of.linearised(0.0, q, v).phi, of.constraint(q, 0.0)))
    for phi in rows(of.state().q, of.state().v):
        np.testing.assert_allclose(phi, [0.0, 0.0, -0.1, 0.0, 0.0], atol=1e-15)


def test_axes_of_a_body():
    """A rotation matrix whatever the length of p, whose second derivatives are right too."""
    p, h = np.array([0.9, -0.4, 0.3, 0.7]), 1e-4

    @jax.jit
    def found(p):
        def first(p):
            return jax.jacrev(body_axes)(p), (body_axes(p), jax.jacfwd(body_axes)(p))

        second, (R, forward) = jax.jacfwd(first, has_aux=True)(p)
        return R, forward, first(p)[0], second

    def differences(fn):
        return np.stack([(fn(p + h * e) - fn(p - h * e)) / (2 * h) for e in np.eye(4)], axis=-1)

    exact = lambda p: Rotation.from_quat(p, scalar_first=True).as_matrix()  # noqa: E731
    R, forward, reverse, second = found(p)
    np.testing.assert_allclose(R, exact(p), atol=1e-15)
    np.testing.assert_allclose(forward, differences(exact), atol=1e-7)
    np.testing.assert_allclose(reverse, forward, atol=1e-14)
    bends = differences(lambda p: np.asarray(found(p)[1]))
    np.testing.assert_allclose(second, bends, atol=1e-7)


def hinge_of(b, **limits):
    return mbd.Revolute("h", "ground", b, point=[0, 0, 0], axis=[0, 0, 1], **limits)


def guide_of(b):
    return mbd.Prismatic("x", "ground", b, point=[0, 0, 0], axis=[0, 0, 1])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda b: mbd.Revolute("j", b, b, point=[0, 0, 0]), 'both are "b"'),
        (lambda b: mbd.Revolute("j", "ground", b), "needs one of `point` and"),
        (lambda b: mbd.Revolute("j", "ground", b, point=[0, 0, 0]), "Revolute \"j\" has an axis"),
        (lambda b: mbd.Spherical("j", "ground", b, point=[0, 0]), '`point` of Spherical.*shape'),
        (lambda b: mbd.Revolute("j", "ground", b, point=[0, 0, 0], axis=[0, 0, 2]), "has length 2"),
        (lambda b: mbd.Revolute("j", "ground", "b", point=[0, 0, 0], axis=[0, 0, 1]),
         'where "b" is must be known'),
        (lambda b: mbd.Revolute("j", "ground", b, frame_a=FRAME), "both `frame_a` and `frame_b`"),
        (lambda b: mbd.Revolute("j", "ground", b, frame_a=FRAME, frame_b=FRAME, axis=[0, 0, 1]),
         "say it twice"),
        (lambda b: mbd.Revolute("j", "ground", b, point=[0, 0, 0], axes=[[0, 0, 1]]),
         '`axes` of Revolute "j" must be two'),
        (lambda b: hinge_of(b, limits=(1.0, -1.0)), '`limits` of Revolute "h" must be lower <= '),
        (lambda b: mbd.Universal("u", "ground", b, point=[0, 0, 0],
                                 axes=[[1, 0, 0], [0.6, 0.8, 0]]),
         "must be at right angles, as the arms of the cross are, but are at 53.1301 degrees"),
        (lambda b: mbd.Gear("g", hinge_of(b), hinge_of(b), teeth=(2, 2.5)), "must be whole"),
        (lambda b: mbd.Gear("g", hinge_of(b), guide_of(b), teeth=(1, 2)),
         'Gear "g" needs a joint with an angle, but Prismatic "x" has none'),
        (lambda b: mbd.joints.Coupler("k", guide_of(b), hinge_of(b), ratio=2.0),
         "Use `RackAndPinion`"),
        (lambda b: mbd.joints.Coupler("k", hinge_of(b), hinge_of(b), ratio=2.0, offset=1.0),
         "`offset`"),
        (lambda b: mbd.PrescribedMotion("d", hinge_of(b), lambda t: jnp.stack([t, t])),
         "must give a number"),
        (lambda b: mbd.PrescribedMotion(
            "d", mbd.Universal("u", "ground", b, point=[0, 0, 0], orientation=UNTURNED), WAVE),
         r"give one of the indices \[0, 1\]"),
        (lambda b: mbd.joints.PrescribedPose("d", "ground", b, point=[0, 0, 0], motion=WAVE),
         "must give a `Pose`"),
        (lambda b: mbd.joints.PointOnCurve("c", "ground", b, point=[0, 0, 0], surfaces=lambda r: r),
         "must give two numbers"),
        (lambda b: mbd.joints.PeriodicSpline([0.0, 2.0, 1.0], [1.0, 1.0, 1.0]),
         "must increase within"),
        (lambda b: mbd.Constraint("c", [b], lambda poses, t: None), "must return one float"),
        (lambda b: mbd.Constraint("c", [b], None), "needs `fn`, `velocity_fn`, or both"),
        (lambda b: mbd.Constraint("c", [b], lambda p, t: t, frames=[None] * 2), "one frame for"),
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make(mbd.Body("b", BOX))
