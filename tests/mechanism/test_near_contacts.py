"""Contacts among many pieces, of which only near ones are looked at: against all pairs, and their
lists against NumPy."""

import functools
import itertools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_verdicts, located
from refusals import check_refused, refusals

import jaxmbd as mbd
from jaxmbd._compiler import rows_at, sums_at, to_jax
from jaxmbd._contact import identity
from jaxmbd._mechanism.appearance import farthest
from jaxmbd._mechanism.collisions import ABSENT, bounding_ball, broad, nearest
from jaxmbd._mechanism.contacts import near as near_contacts

R = 0.1


def pieces_of(kinds, radius=R):
    """Bodies in layers above level ground that fall and turn, and pieces with a shape for each."""
    rng = np.random.default_rng(1)
    bodies, pieces = [], [("ground", mbd.HalfSpace())]
    for i, kind in enumerate(kinds):
        shape = {
            "s": lambda: mbd.Sphere(radius),
            "b": lambda: mbd.Box(size=radius * jnp.array([2.0, 1.5, 1.8])),
            "c": lambda: mbd.Capsule(radius=0.7 * radius, length=1.5 * radius),
        }[kind]()
        layer, place = divmod(i, 4)
        p = rng.normal(size=4)
        at = [0.24 * (place % 2), 0.24 * (place // 2), 0.13 + 0.24 * layer]
        body = mbd.Body(
            f"body {i}",
            mbd.Inertia.sphere(radius=R, mass=1.0),
            position=at + 0.01 * rng.normal(size=3),
            orientation=p / np.linalg.norm(p),
            velocity=[0.0, 0.0, -0.5] + 0.2 * rng.normal(size=3),
            angular_velocity=rng.normal(size=3),
        )
        bodies.append(body)
        pieces.append((body, shape))
    return bodies, pieces


def pile(kinds, pair_budget=None, contact_budget=None, radius=R, friction=0.5, **options):
    """A mechanism of these pieces, with all pairs unless there is a budget."""
    bodies, pieces = pieces_of(kinds, radius)
    law = mbd.ContactLaw(friction)
    contacts = mbd.contacts_among(pieces, law=law, pair_budget=pair_budget, **options)
    return mbd.Mechanism(bodies, contacts=contacts, contact_budget=contact_budget)


# --- lists ----------------------------------------------------------------------------------------


def cloud(dtype, count=70, room=200, large=()):
    """Balls of unequal sizes on 50 bodies, some of which make no pairs, with some at one place."""
    rng = np.random.default_rng(0)
    kind, body = rng.integers(0, 2, count), rng.integers(0, 50, count)
    apart = {tuple(sorted(pair)) for pair in rng.integers(0, 50, (30, 2)).tolist()}
    apart = {(a, b) for a, b in apart if a != b} | {(0, k) for k in range(1, 20)}
    order = np.lexsort((np.arange(count), kind))
    rank = np.argsort(order)
    table = near_contacts._at_either(apart, 50)
    balls = broad.Balls(body, table, kind, np.array([[0, 1], [1, 2]]), (room,) * 3, rank, large)
    radius = np.exp(0.4 * rng.normal(size=count)) * 0.1
    radius[list(large)] = 1.0
    center = rng.uniform(-0.6, 0.6, (count, 3))
    center[10] = center[11]
    return balls, apart, center.astype(dtype), radius.astype(dtype)


def _sample(tree, k):
    return jax.tree.map(lambda x: x[k], tree)


def by_look_at_all(balls, apart, center, radius, reach):
    found = [set() for _ in balls.room]
    for i, j in itertools.permutations(range(len(center)), 2):
        a, b = sorted((balls.body[i], balls.body[j]))
        if balls.rank[i] < balls.rank[j] and a != b and (a, b) not in apart:
            if np.sum((center[i] - center[j]) ** 2) < (radius[i] + radius[j] + reach) ** 2:
                found[balls.group[balls.kind[i], balls.kind[j]]].add((i, j))
    return found


def test_balls_hold_shapes():
    """The farthest points of all shapes in many directions are in the ball, and one is on it; in
    NumPy, in a program that knows the sizes, and for several shapes at once."""
    rng = np.random.default_rng(6)
    shapes = [
        mbd.Sphere(0.3),
        mbd.Capsule(radius=0.1, length=0.5),
        mbd.Cylinder(radius=0.2, length=0.3),
        mbd.Box(size=[0.1, 0.2, 0.3]),
        mbd.shapes.Ellipsoid(semiaxes=[0.1, 0.3, 0.2]),
        mbd.shapes.ConvexPoints(np.array([[1.0, 1, 1], [2, 1, 1], [1, 2, 1], [1, 1, 3]])),
        mbd.shapes.Disc(0.4),
    ]
    d = np.concatenate([rng.normal(size=(3000, 3)), [[0.2, 0.0, 0.15], [0.1, 0.2, 0.3]], np.eye(3)])
    d = d / np.linalg.norm(d, axis=1, keepdims=True)
    known = jax.jit(lambda: [bounding_ball(shape) for shape in shapes])
    several = [jax.tree.map(lambda x: np.stack([x, 2 * np.asarray(x)]), shape) for shape in shapes]
    for shape, (center, radius), two in zip(shapes, jax.device_get(known()), several):
        distance = np.linalg.norm(farthest(shape, d) - center, axis=1)
        assert np.all(distance <= radius * (1 + 1e-12))
        assert np.max(distance) >= 0.99 * radius
        at_once = bounding_ball(two)
        assert isinstance(at_once[1], np.ndarray)
        np.testing.assert_allclose(at_once[1], [radius, 2 * radius])
        np.testing.assert_allclose(np.broadcast_to(at_once[0], (2, 3))[1], 2 * center)


@pytest.mark.parametrize("large", [(), (3, 50)], ids=["alike", "two large"])
@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_pairs_are_those_of_all(dtype, large):
    """Each allowed pair once, in its group and in order; in a batch, and with balls nowhere or far
    out. With little room the list is full and says what it lacks."""
    balls, apart, center, radius = cloud(dtype, large=large)
    reach = dtype(0.05)
    batch = np.stack([center, center * dtype(2), center * dtype(np.nan), center * dtype(1e30)])

    @jax.jit
    def found(batch, radius, reach):
        full = balls._replace(room=(5,) * 3)
        one = broad._by_grid(balls, batch[0], radius, reach)
        many = jax.vmap(lambda x: broad.near_pairs(balls, x, radius, reach))(batch)
        return (
            one,
            many,
            broad._of_all(balls, batch[0], radius, reach),
            broad.near_pairs(full, batch[0], radius, reach),
        )

    one, many, at_once, full = jax.device_get(found(batch, radius, reach))
    expected = by_look_at_all(balls, apart, center, radius, reach)
    assert min(map(len, expected)) > 5
    twice = by_look_at_all(balls, apart, *(batch[1], radius), reach)
    cases = [(one, expected), (at_once, expected)]
    cases += [(_sample(many, k), x) for k, x in enumerate((expected, twice))]
    for pairs, wanted in cases:
        for g, start in enumerate(balls.start[:-1]):
            here = slice(start, start + pairs.exist[g])
            listed = list(zip(pairs.first[here].tolist(), pairs.second[here].tolist()))
            assert len(listed) == len(wanted[g])
            assert set(listed) == wanted[g]
        assert not pairs.lost
    assert not np.any(many.exist[2])
    assert full.lost and np.all(full.exist == 5)


def test_nearest_pairs_are_chosen(monkeypatch):
    """Whole pairs by their smallest gaps, as many as there is room for; of equally near ones the
    first. What is absent or beyond reach is not chosen, and overlaps without room are told."""
    rng = np.random.default_rng(2)
    one = rng.uniform(-0.2, 1.0, (30, 1))
    two = rng.uniform(-0.2, 1.0, (20, 2))
    two[::3, 1] = ABSENT
    one[5:9] = 0.25
    least = np.concatenate([one[:, 0], two.min(axis=1)])
    size = np.concatenate([np.ones(30, int), np.sum(two < 1e5, axis=1)])
    flat = np.concatenate([one.ravel(), two.ravel()])
    start = np.concatenate([np.arange(30), 30 + 2 * np.arange(20)])

    def literal(room):
        chosen, left = [], room
        for k in np.lexsort((np.arange(50), least)):
            if least[k] >= 0.6 or size[k] > left:
                break
            left -= size[k]
            chosen += [p for p in range(start[k], start[k] + (1 if k < 30 else 2)) if flat[p] < 1e5]
        lost = any(x < -1e-9 and start[k] not in chosen for k, x in enumerate(least))
        return sorted(chosen), lost

    rooms = (8, 25, 27, 200)
    for loops in (True, False):
        monkeypatch.setitem(nearest.__globals__, "loops_cost_nothing", lambda loops=loops: loops)
        find = jax.jit(lambda *x: [nearest(x, [30, 20], jnp.asarray(0.6), room) for room in rooms])
        for room, found in zip(rooms, jax.device_get(find(one, two))):
            chosen, lost = literal(room)
            assert found.place[: len(chosen)].tolist() == chosen, room
            assert np.all(found.place[len(chosen) :] == flat.size)
            assert bool(found.lost) == lost
    assert literal(8)[1]
    assert not literal(200)[1]


def test_contacts_are_known_again():
    """By the pair and the point, wherever they were; another point of the same pair is seen."""
    rng = np.random.default_rng(3)
    before = np.unique(rng.integers(0, 5, (40, 3)), axis=0)
    rng.shuffle(before)
    before = np.concatenate([before[:25], np.full((5, 3), -1)]).astype(np.int32)
    now = rng.integers(0, 5, (60, 3)).astype(np.int32)
    now[7] = -1
    old = before.tolist()
    place = [old.index(x) if x[0] >= 0 and x in old else -1 for x in now.tolist()]
    seen = [x[0] >= 0 and any(x[:2] == y[:2] for y in old) for x in now.tolist()]
    for find in (identity._by_chains, identity._of_all):
        found = jax.jit(find)(before, now)
        assert np.asarray(found[0]).tolist() == place
        assert np.asarray(found[1]).tolist() == seen
    alike = jax.device_get(jax.jit(identity._by_chains)(before, before))
    assert alike[0].tolist() == [*range(len(before) - 5), *[-1] * 5]
    assert alike[1].tolist() == [True] * (len(before) - 5) + [False] * 5
    assert 0 < sum(seen) - sum(x >= 0 for x in place)


def test_rows_at_places():
    """Both functions, their second derivatives, and batches with any axis."""
    rng = np.random.default_rng(4)
    x, index = rng.normal(size=(4, 3, 2)), rng.integers(0, 4, (5, 6)).astype(np.int32)
    y = rng.normal(size=(6, 2))

    @jax.jit
    def found(x, index, y):
        gathered = lambda x: rows_at(x, index[0])  # noqa: E731
        added = lambda y: sums_at(y, index[0], 4)  # noqa: E731
        return [
            jax.vmap(gathered, in_axes=1, out_axes=1)(x),
            jax.vmap(lambda i: rows_at(x, i))(index),
            jax.vmap(lambda i, x: rows_at(x, i), in_axes=(0, 2))(index[:2], x),
            added(y),
            jax.vmap(added, in_axes=1)(y),
            jax.vmap(lambda i: sums_at(y, i, 4))(index),
            jax.hessian(lambda x: jnp.sum(jnp.sin(gathered(x))))(x),
            jax.hessian(lambda y: jnp.sum(jnp.sin(added(y))))(y),
        ]

    def diagonal(x):
        return np.diag(x.ravel()).reshape(2 * x.shape)

    def second(x):
        return np.einsum("ik,kl,j->ikjl", x, np.eye(2), np.ones(6))

    def sums(y, i):
        total = np.zeros((4, *y.shape[1:]))
        np.add.at(total, i, y)
        return total

    expected = [
        x[index[0]],
        x[index],
        np.stack([x[..., k][index[k]] for k in (0, 1)]),
        sums(y, index[0]),
        sums(y, index[0]).T,
        np.stack([sums(y, i) for i in index]),
        -diagonal(np.sin(x) * np.bincount(index[0], minlength=4)[:, None, None]),
        -np.einsum(
            "ij,ikjl->ikjl",
            index[0][:, None] == index[0],
            second(np.sin(sums(y, index[0])[index[0]])),
        ),
    ]
    for a, b in zip(found(x, index, y), expected):
        np.testing.assert_allclose(a, b, atol=1e-14)


# --- rows -----------------------------------------------------------------------------------------


def test_rows_are_those_of_all_pairs():
    """Gaps, Jacobians and coefficients of the pairs within reach, also in a batch and when balls
    have gone elsewhere; empty places have no J."""
    kinds = "sscs"
    every, near = pile(kinds), pile(kinds, 12, reach=0.05)
    q = np.asarray(every.state().q)
    moved = np.stack([q, q + 0.03 * np.random.default_rng(5).normal(size=q.shape)])
    all_rows, found = (np_rows(mechanism, moved) for mechanism in (every, near))
    names, element = every.contact_names, near.contact("near")
    for k in range(2):
        expected = {}
        for i, name in enumerate(names):
            if all_rows.gap[k, i] < ABSENT / 2:
                expected.setdefault(name, []).append(all_rows.gap[k, i])
        # All points of a pair, or none.
        expected = {name: x for name, x in expected.items() if min(x) < 0.05}
        pairs = found.pairs[k]
        here = pairs[:, 0] >= 0
        assert np.sum(here) == sum(map(len, expected.values())) > 5
        for slot in np.flatnonzero(here):
            a, b, point = pairs[slot]
            ends = [element.body_names[x] for x in (a, b)]
            (name,) = {"-".join(ends), "-".join(ends[::-1])} & set(expected)
            i = names.index(name) + point
            np.testing.assert_allclose(found.gap[k, slot], all_rows.gap[k, i], atol=1e-14)
            own, expected_row = dense(found.J, k)[slot, 0], dense(all_rows.J, k)[i, 0]
            np.testing.assert_allclose(own, expected_row, atol=1e-14)
        assert not np.any(dense(found.J, k)[~here])
        assert np.all(found.law.friction[k] == 0.5)
    assert not np.any(found.lost)


def np_rows(mechanism, qs):
    """Rows at several q."""
    return jax.device_get(jax.jit(jax.vmap(lambda q: mechanism.contact_rows(0.0, q)))(qs))


def dense(J, k):
    """J of sample k as an array."""
    one = _sample(J, k)
    if hasattr(one, "J"):
        return one.J
    table = np.zeros((*one.blocks.shape[1:3], one.size, one.count + 1))
    for block, bodies in zip(one.blocks, one.bodies):
        for c, body in enumerate(bodies):
            table[c, :, :, body] += block[c]
    return table[..., : one.count].reshape(*table.shape[:2], -1)


def test_programs_do_not_grow_with_bodies():
    """Equations of the traced program for 200 and 1000 spheres. All pairs of these are refused."""

    def equations(n):
        mechanism = pile("s" * n, 8 * n, 4 * n)
        jaxpr = jax.make_jaxpr(lambda q: mechanism.contact_rows(0.0, q))(mechanism.state().q)
        return str(jaxpr).count(" = ")

    assert equations(64) < equations(200) == equations(1000)
    with pytest.raises(ValueError, match=r"1001 pieces have 500500 pairs.*pair_budget=8008"):
        pile("s" * 1000)


def test_overlaps_without_room_are_told():
    """By too few pairs, and by too few points; with room for all there is nothing to tell."""
    kinds = "sss"
    piles = [pile(kinds, 3), pile(kinds, 2), pile(kinds, 3, 3), pile(kinds, 3, 1)]
    state = piles[0].state()
    q = np.asarray(state.q).reshape(7, 3).copy()
    q[:3] = [[0.0, 0.21, 0.105], [0.0, 0.0, 0.182], [1.0] * 3]
    close = q.ravel()
    tight = (q * np.where(np.arange(7) < 2, 0.9, 1.0)[:, None]).ravel()
    lost = [np_rows(mechanism, np.stack([close, tight])).lost for mechanism in piles]
    assert np.transpose(lost).tolist() == [[False] * 4, [False, True, False, True]]


# --- motions --------------------------------------------------------------------------------------

DT = 2e-3


def moved(mechanism, state=None, t1=0.2, **options):
    state = mechanism.state() if state is None else state
    saveat = diffrax.SaveAt(t0=True, steps=True)
    method = mbd.ContactImpulse()
    return mbd.simulate(mechanism, method, state, t1=t1, dt=DT, saveat=saveat, **options)


@functools.cache
def both():
    """The motions of a small pile with all pairs and with near ones."""
    kinds = "sssss"
    return [(m, moved(m)) for m in (pile(kinds), pile(kinds, 15, reach=0.05))]


@pytest.mark.slow
def test_motion_is_that_of_all_pairs():
    """To rounding, while balls fall, collide and roll over each other."""
    (_, every), (_, near) = both()
    np.testing.assert_allclose(near.q, every.q, atol=1e-11)
    np.testing.assert_allclose(near.v, every.v, atol=1e-10)
    assert near.contact_loads is None and every.piece_loads is None
    pressed, pairs = np.asarray(near.contact_force)[..., 0] > 0, np.asarray(near.contact_pairs)
    assert np.sum(pressed & (pairs[..., 0] > 0)) > 30  # ball on ball
    assert np.all(pairs[pressed] >= 0)


@pytest.mark.slow
def test_forces_of_pairs():
    """The forces of the ground are the rate of the momentum less the weight, in each step; of a
    point without force the state is open."""
    (_, _), (mechanism, sol) = both()
    force = np.asarray(mbd.reports.contact_forces(mechanism, sol))[1:]
    on_ground = np.asarray(sol.contact_pairs)[1:, :, 0] == 0
    rates = np.diff(np.asarray(sol.v).reshape(len(sol.t), 6, 5)[:, :3], axis=0) / DT
    of_bodies = np.swapaxes(rates, 1, 2) + [0.0, 0.0, 9.81]
    given = of_bodies.sum(axis=1)
    by_ground = np.sum(np.where(on_ground[..., None], force, 0.0), axis=1)
    np.testing.assert_allclose(by_ground, given, atol=1e-9)
    on_pieces = np.asarray(mbd.reports.piece_forces(mechanism, sol))[1:]
    np.testing.assert_allclose(on_pieces[:, 0], -given, atol=1e-9)
    # Between balls, the directions turn a little in the step over which the forces are means.
    off = np.max(np.linalg.norm(on_pieces[:, 1:] - of_bodies, axis=2), axis=1)
    assert np.all(off <= 0.02 * np.max(np.linalg.norm(force, axis=2), axis=1) + 1e-9)
    normal, pairs = np.asarray(sol.contact_force)[..., 0], np.asarray(sol.contact_pairs)
    of_pieces = [np.sum(normal * np.any(pairs[..., :2] == k, axis=2), axis=1) for k in range(6)]
    for load in (sol.piece_loads.mean, sol.piece_loads.peak):
        np.testing.assert_allclose(load, np.stack(of_pieces, axis=1), atol=1e-9)
    states = jax.device_get(mbd.reports.contact_states(mechanism, sol))
    pressed = np.asarray(sol.contact_force)[..., 0] > 1e-6 * 50
    assert np.array_equal(np.asarray(states.state) != 0, pressed)
    assert np.max(states.share) <= 1 + 1e-6
    with pytest.raises(ValueError, match="whose `contact_pairs` tell"):
        mbd.reports.contact_forces(mechanism, sol.state(), np.asarray(sol.contact_force)[-1])
    pytest.importorskip("matplotlib").use("Agg")
    q, *last = sol.q[-1], sol.contact_force[-1], sol.contact_pairs[-1]
    world = mbd.reports.contact_forces(mechanism, mbd.State(0.0, q, sol.v[-1]), *last)
    np.testing.assert_allclose(world, force[-1], atol=1e-9)
    names = ("contact_force", "contact_pairs")
    axes = mbd.plots.draw(mechanism, q, **dict(zip(names, last, strict=True)))
    bare = mbd.plots.draw(mechanism, q)
    assert len(axes.collections) + len(axes.lines) > len(bare.collections) + len(bare.lines)


@pytest.mark.slow
def test_loads_and_pairs_in_files(tmp_path):
    (_, _), (mechanism, sol) = both()
    mbd.save(mechanism, tmp_path / "motion.npz", sol)
    columns = mbd.io.load_trajectory(tmp_path / "motion.npz").columns
    np.testing.assert_array_equal(columns["contact_pairs"], sol.contact_pairs)
    np.testing.assert_array_equal(columns["pieces_peak"], sol.piece_loads.peak)


@pytest.mark.slow
@pytest.mark.parametrize("impacts", [0, 2])
def test_loads_on_pieces_whatever_is_saved(impacts):
    """Between saved times, on and off the steps: the ground gives all momentum, and the peaks are
    the largest loads of all steps."""
    mechanism = pile("sssss", 15, reach=0.05, friction=0.0)
    method = mbd.ContactImpulse(impacts=located(impacts))
    times = np.array([0.0401, 0.0412, 0.0999, 0.15, 0.2])

    @jax.jit
    def runs():
        def run(saveat):
            return mbd.simulate(mechanism, method, mechanism.state(), t1=0.2, dt=DT, saveat=saveat)

        return run(diffrax.SaveAt(steps=True)), run(diffrax.SaveAt(ts=to_jax(times)))

    every, some = jax.device_get(runs())
    impulse, mean, peak = some.piece_loads
    gained = (some.v - np.asarray(mechanism.state().v)).reshape(5, 6, 5)[:, 2].sum(axis=1)
    np.testing.assert_allclose(
        np.cumsum(impulse[:, 0]), gained + 5 * 9.81 * times, rtol=1e-8, atol=1e-9
    )
    np.testing.assert_allclose(mean * np.diff(times, prepend=0.0)[:, None], impulse, atol=1e-12)
    if not impacts:  # otherwise the part of a step that leads to a saved time is a shorter step
        np.testing.assert_allclose(np.max(peak, axis=0), np.max(every.piece_loads.peak, axis=0))
    assert "loads on 6 pieces" in str(some.piece_loads)


def test_a_piece_from_beyond_reach_is_told():
    """One that overlaps after a single step from farther than the reach."""
    (_, _), (mechanism, _) = both()
    state = mechanism.state()
    q, v = (np.asarray(x).reshape(-1, 5).copy() for x in (state.q, state.v))
    q[2, 4], v[2, 4] = 0.8, -300.0
    sol = moved(mechanism, mbd.State(0.0, q.ravel(), v.ravel()), throw=False)
    assert_verdicts(sol.result, [mbd.RESULTS.contact_overflow])


def test_overlaps_at_the_start_are_named():
    (_, _), (mechanism, _) = both()
    q = np.asarray(mechanism.state().q).reshape(7, 5).copy()
    q[2, 1] = 0.06
    words = r'NearContacts "near" of "ground" and "body 1" has the gap -0.04'
    with pytest.raises(Exception, match=words):
        moved(mechanism, mbd.State(0.0, q.ravel(), np.zeros(30)))


def test_pictures_and_files(tmp_path):
    """Forces are drawn where they act at saved times; a saved mechanism is the same."""
    from jaxmbd._mechanism.appearance import contact_arrows, placed_shapes
    from jaxmbd._mechanism.appearance.frames import body_frames

    (_, _), (mechanism, sol) = both()
    arrows = contact_arrows(mechanism, sol, np.asarray(sol.t), np.asarray(sol.q))
    force = np.linalg.norm(np.asarray(mbd.reports.contact_forces(mechanism, sol)), axis=2)
    np.testing.assert_allclose(np.linalg.norm(arrows.force, axis=2), force, atol=1e-12)
    assert len(placed_shapes(mechanism, body_frames(mechanism, np.asarray(sol.q)))) == 6
    mbd.save(mechanism, tmp_path / "pile.json")
    read = mbd.load(tmp_path / "pile.json").mechanism
    assert jax.tree.structure(read) == jax.tree.structure(mechanism)
    assert all(map(np.array_equal, jax.tree.leaves(read), jax.tree.leaves(mechanism)))
    assert 'NearContacts "near": ground - body 0' in repr(mechanism)


@pytest.mark.slow
def test_gradient_is_that_of_all_pairs():
    """By sizes, friction and the whole start, in both modes, with spheres, boxes and capsules."""
    kinds = "sbcs"
    weights = np.random.default_rng(3).normal(size=2 * 28 - 4)

    def end(x, pair_budget):
        options = {} if pair_budget is None else {"reach": 0.06}
        mechanism = pile(kinds, pair_budget, radius=x[0], friction=x[1], **options)
        start = mechanism.state()
        state = mbd.State(0.0, start.q + x[2:30], 0.5 * start.v + x[30:])
        sol = mbd.simulate(
            mechanism, mbd.ContactImpulse(), state, dt=DT, num_steps=25, start_tolerance=0.1
        )
        return jnp.concatenate([sol.q[-1], sol.v[-1]]) @ weights

    x = np.concatenate([[R, 0.5], np.zeros(52)])
    along = np.random.default_rng(4).normal(size=54)

    @jax.jit
    def found(x):
        every = jax.jvp(functools.partial(end, pair_budget=None), (x,), (along,))
        value, forward = jax.linearize(functools.partial(end, pair_budget=10), x)
        (gradient,) = jax.linear_transpose(forward, x)(1.0)
        return every, (value, forward(along)), gradient

    every, near, gradient = found(x)
    for a, b in zip(near, every):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    np.testing.assert_allclose(along @ gradient, near[1], rtol=1e-10)


@pytest.mark.slow
def test_located_impacts_are_those_of_all_pairs():
    """Balls that bounce off each other and the ground within steps: the motion and its gradient."""
    bodies, pieces = pieces_of("sssss")
    law, weight = mbd.ContactLaw(0.5, restitution=0.5), np.random.default_rng(6).normal(size=30)
    method = mbd.ContactImpulse(impacts=mbd.Located(2))

    def found(**near):
        contacts = mbd.contacts_among(pieces, law=law, **near)
        mechanism = mbd.Mechanism(bodies, contacts=contacts)

        def end(v):
            start = mbd.State(0.0, mechanism.state().q, v)
            sol = mbd.simulate(mechanism, method, start, dt=DT, num_steps=100)
            return weight @ sol.v[-1], (sol.v[-1], sol.contact_pairs)

        return end, mechanism.state().v

    # All pairs forwards only, since their gradient takes long to compile.
    end, v = found()
    along = np.random.default_rng(7).normal(size=v.shape)
    _, slope, (every, _) = jax.jit(lambda v: jax.jvp(end, (v,), (along,), has_aux=True))(v)
    end, v = found(pair_budget=15, reach=0.03)
    (_, (near, pairs)), gradient = jax.jit(jax.value_and_grad(end, has_aux=True))(v)
    np.testing.assert_allclose(near, every, atol=1e-10)
    np.testing.assert_allclose(gradient @ along, slope, rtol=1e-8)
    assert np.any(np.asarray(pairs) > 0)
    start = np.asarray(mbd.Mechanism(bodies).state().v)
    assert np.sum(np.abs(np.reshape(every - start, (6, 5))[0]) > 0.05) >= 2  # ball on ball


@pytest.mark.slow
def test_equilibrium_is_that_of_all_pairs():
    """A ball falls between three that are fixed and turns on a weak spring: place, forces and their
    slopes. The search begins where no pair is near, and takes shorter steps for it."""
    ring = 2.2 * R / np.sqrt(3)
    angles = 2 * np.pi / 3 * np.arange(3)
    places = [np.array([ring * np.cos(a), ring * np.sin(a), 0.0]) for a in angles]
    pieces = [("ground", mbd.Sphere(R), mbd.Pose(x, np.eye(4)[0])) for x in places]
    ball = mbd.Body("ball", mbd.Inertia.sphere(radius=R, mass=1.0), position=[0.03, 0.02, 0.25])
    stiffness = np.array([5.0, 5.0, 5.0, 1.0, 1.0, 1.0])
    hold = mbd.Bushing("hold", "ground", ball, point=[0, 0, 0.2], stiffness=stiffness)

    def slope_of(forces):
        return lambda x: jax.jvp(forces, (x,), (1.0,), has_aux=True)[1:]

    def found(slopes=slope_of, **near):
        contacts = mbd.contacts_among([*pieces, (ball, mbd.Sphere(R))], **near)

        def forces(side):
            gravity = jnp.stack([side, 0 * side, 0 * side - 9.81])
            mechanism = mbd.Mechanism([ball], (), [hold], contacts=contacts, gravity=gravity)
            rest = mbd.analysis.equilibrium(mechanism, mechanism.state(), throw=False)
            normal = rest.report.contact_force[:, 0]
            return normal, (
                normal,
                rest,
                mbd.reports.contact_forces(mechanism, rest, normal[:, None]),
            )

        return jax.device_get(jax.jit(slopes(forces))(np.array(0.2)))

    slope, (normal, every, world) = found()
    near_slope, (near_normal, near, near_world) = found(pair_budget=3)
    assert_verdicts([every.report.result, near.report.result], [mbd.RESULTS.successful] * 2)
    np.testing.assert_allclose(near.q, every.q, atol=1e-9)
    order = np.argsort(near.report.contact_pairs[:, 0])
    by_piece = np.argsort(
        np.argmin(
            np.linalg.norm(
                world[:, None] / normal[:, None, None] + np.array(places) / ring, axis=2
            ),
            axis=1,
        )
    )
    np.testing.assert_allclose(near_normal[order], normal[by_piece], rtol=1e-7)
    np.testing.assert_allclose(near_slope[order], slope[by_piece], rtol=1e-6)
    np.testing.assert_allclose(near_world.sum(0), world.sum(0), atol=1e-8)
    full = found(slopes=lambda f: f, pair_budget=1)[1][1]
    assert_verdicts([full.report.result], [mbd.RESULTS.contact_overflow])


@pytest.mark.slow
def test_limit_load_of_a_box_on_the_ground():
    """It slips at the coefficient of friction."""
    size = [0.2, 0.2, 0.1]
    box = mbd.Body("box", mbd.Inertia.box(size=size, mass=2.0), position=[0.0, 0.0, 0.05])
    pieces = [("ground", mbd.HalfSpace()), (box, mbd.Box(size=size))]
    near = mbd.contacts_among(pieces, law=mbd.ContactLaw(0.3), pair_budget=1)

    def family(x):
        gravity = 9.81 * jnp.stack([x, 0 * x, 0 * x - 1])
        return mbd.Mechanism([box], contacts=near, gravity=gravity)

    start = mbd.Mechanism([box]).state()
    found = mbd.analysis.limit_load(family, start, 0.0, 1.0, tolerance=1e-4, progress=False)
    assert found.parameter <= 0.3 + 1e-9 and found.beyond > 0.3 - 1e-9
    assert found.beyond - found.parameter < 2e-4


# --- refusals -------------------------------------------------------------------------------------

SPHERES = [("a", mbd.Sphere(R)), ("b", mbd.Sphere(R))]


@refusals(
    ("NearContacts-one piece", "needs two pieces or more, but has 1",
     lambda: mbd.contacts_among(SPHERES[:1], pair_budget=1)),
    ("NearContacts-one body", "no two pieces on different bodies",
     lambda: mbd.contacts_among(2 * SPHERES[:1], pair_budget=1)),
    ("NearContacts-unsupported", "No contact points of a HalfSpace and a HalfSpace",
     lambda: mbd.contacts_among([(x, mbd.HalfSpace()) for x in "ab"], pair_budget=1)),
    ("contacts_among-reach", "needs `pair_budget`",
     lambda: mbd.contacts_among(SPHERES, reach=0.1)),
    ("NearContacts-law", "`friction` of NearContacts",
     lambda: mbd.contacts_among(SPHERES, pair_budget=1, law=mbd.ContactLaw([0.1, 0.2]))),
    ("piece_forces-without pieces", "must have `NearContacts`, but has none",
     lambda: mbd.reports.piece_forces(pile("s"), pile("s").state())),
)  # fmt: skip
def test_bad_input_is_refused(words, call):
    check_refused(call, words)
