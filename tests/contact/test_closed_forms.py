"""Motions of bodies in contact whose closed forms are in textbooks: balls that roll, balls in a row
that strike each other, a chain over a post, a pile of three balls, dominoes, a bowl, a stack."""

import functools
import itertools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import G

import jaxmbd as mbd

R, M, MU = 0.1, 2.0, 0.3
FLAT = mbd.Plane(normal=[0.0, -1.0, 0.0], x_axis=[1.0, 0.0, 0.0])
BALL, SPHERE, GROUND = mbd.Inertia.sphere(radius=R, mass=M), mbd.Sphere(R), mbd.HalfSpace()


def moved(mechanism, dt, steps, method=mbd.ContactImpulse(), **options):
    start = mechanism.state()
    return mbd.simulate(mechanism, method, start, dt=dt, num_steps=steps, throw=False, **options)


@jax.jit
@jax.vmap
def down(slope, way, tilt):
    """Velocities of a ball after 0.1 s on a slope, between two planes that are tilted to both
    sides, and their derivatives by the slope."""

    def velocities(slope):
        ball = mbd.Body("ball", BALL, position=jnp.stack([0 * tilt, 0 * tilt, R / jnp.cos(tilt)]))
        contacts = []
        for side in (-1, 1):
            half = side * tilt / 2
            turn = jnp.stack([jnp.cos(half), jnp.sin(half), 0 * half, 0 * half])
            plane = mbd.Pose(jnp.zeros(3), turn)
            contacts.append(
                mbd.Contact(
                    f"{side}", "ground", ball, GROUND, SPHERE, frame_a=plane, friction=MU
                )
            )  # fmt: skip
        along = jnp.stack([jnp.cos(way), jnp.sin(way), 0 * way]) * jnp.sin(slope)
        gravity = G * along.at[2].add(-jnp.cos(slope))
        sol = moved(mbd.Mechanism([ball], contacts=contacts, gravity=gravity), 0.01, 10)
        return sol.v[-1]

    return jax.jvp(velocities, (slope,), (jnp.ones_like(slope),))


@pytest.mark.slow
def test_a_ball_rolls_down_a_slope_or_slides():
    """With c = cos(tilt) it rolls at g sin(slope) / (1 + 2 / (5 c^2)) if friction is enough, until
    tan(slope) = mu (5 c^2 + 2) / (2 c), and slides at g (sin(slope) - mu cos(slope) / c) beyond.
    Without a tilt both contacts are the same: 5/7 g sin(slope), until 7/2 mu."""
    tilt = np.array([0.0, 0.0, 0.0, 0.7, 0.7])
    way = np.array([0.4, -2.0, 1.1, 0.0, np.pi])
    c = np.cos(tilt)
    limit = np.arctan(MU * (5 * c**2 + 2) / (2 * c))
    np.testing.assert_allclose(np.tan(limit[0]), 3.5 * MU)
    for share, rolls in ((0.3, True), (0.995, True), (1.005, False), (1.3, False)):
        s = share * limit
        v, slope = jax.device_get(down(s, way, tilt))
        share = 1 / (1 + 2 / (5 * c**2))
        a = share * G * np.sin(s) if rolls else G * (np.sin(s) - MU * np.cos(s) / c)
        da = share * G * np.cos(s) if rolls else G * (np.cos(s) + MU * np.sin(s) / c)
        spin = a / (R * c) if rolls else 2.5 * MU * G * np.cos(s) / R
        dspin = da / (R * c) if rolls else -2.5 * MU * G * np.sin(s) / R
        for found, linear, angular in ((v, a, spin), (slope, da, dspin)):
            zero = 0 * way
            x, y = np.cos(way), np.sin(way)
            expected = np.stack([linear * x, linear * y, zero, -angular * y, angular * x, zero])
            np.testing.assert_allclose(found, 0.1 * expected.T, atol=1e-9)


SLAB, FORCE = 10.0, 20.0


@jax.jit
@jax.vmap
def pulled(way, on_ground, on_slab):
    """Velocities of a slab that is pulled along on three balls after 0.1 s, the slab first, and
    their derivatives by the force."""
    half = 0.02
    box = mbd.Inertia.box(size=[10 * R, 10 * R, 2 * half], mass=SLAB)
    slab = mbd.Body("slab", box, position=[0.0, 0.0, 2 * R + half])
    angles = 2 * np.pi / 3 * np.arange(3)
    balls = [
        mbd.Body(f"{i}", BALL, position=[4 * R * np.cos(a), 4 * R * np.sin(a), R])
        for i, a in enumerate(angles)
    ]
    lower = mbd.Pose(np.array([0.0, 0.0, -half]), np.array([0.0, 1.0, 0.0, 0.0]))
    contacts = []
    for x in balls:
        for a, mu, of in (("ground", on_ground, {}), (slab, on_slab, dict(frame_a=lower))):
            name = f"{x.name} {a if a == 'ground' else 'slab'}"
            contacts.append(mbd.Contact(name, a, x, GROUND, SPHERE, friction=mu, **of))

    def velocities(force):
        along = jnp.stack([jnp.cos(way), jnp.sin(way), 0 * way])
        pull = mbd.PointForce("pull", slab, point=[0, 0, 2 * R], force_world=force * along)
        of = dict(contacts=contacts, gravity=[0, 0, -G])
        return moved(mbd.Mechanism([slab, *balls], (), [pull], **of), 0.01, 10).v[-1]

    return jax.jvp(velocities, (jnp.asarray(FORCE),), (jnp.ones(()),))


@pytest.mark.slow
def test_a_slab_on_rolling_balls():
    """As in the rolling test of SimBenchmark. With friction f of the slab and g of the ground each
    ball has M a' = f + g and 2/5 M r' = f - g, for its spin r' / R. If it rolls on both, a' = r' =
    a / 2, and n balls weigh on the force as 7/20 n M. If the slab slips, its friction is mu times
    its weight; if the ball slips on the ground, a' + r' = a, g is known, and f = (M a + 3/2 g) 2/7.

    Reference: SimBenchmark (https://leggedrobotics.github.io/SimBenchmark), rolling test."""
    way, M3 = np.array([np.pi / 4, 0.3, -2.0]), 3 * M
    on_ground, on_slab = np.array([[0.5, 0.5, 0.005], [0.5, 0.02, 0.5]])
    v, slope = jax.device_get(pulled(way, on_ground, on_slab))
    heavy = SLAB + np.array([7 / 20, 0, 2 / 7]) * M3
    resists = np.array([0, 0.02 * SLAB, 3 / 7 * 0.005 * (SLAB + M3)]) * G
    a, da = (FORCE - resists) / heavy, 1 / heavy
    direction = np.stack([np.cos(way), np.sin(way), 0 * way], 1)
    for found, expected in ((v, a), (slope, da)):
        linear = found.reshape(3, 6, 4)[:, :3]
        np.testing.assert_allclose(linear[:, :, 0], 0.1 * expected[:, None] * direction, atol=1e-9)
        balls = np.repeat(0.05 * expected[0] * direction[0][:, None], 3, axis=1)
        np.testing.assert_allclose(linear[0, :, 1:], balls, atol=1e-9)


LAWS = {"newton": mbd.contacts.Newton(), "poisson": mbd.contacts.Poisson()}


@functools.partial(jax.jit, static_argnames="law")
@functools.partial(jax.vmap, in_axes=(None, 0, 0, 0, 0))
def struck(law, masses, x, v, e):
    """Places and velocities along a line after one step of 0.1 s, and their derivatives by e."""

    def after(e):
        way = jnp.asarray([2.0, -1.0, 2.0]) / 3
        bodies = [
            mbd.Body(
                f"{i}", mbd.Inertia.sphere(radius=R, mass=masses[i]), position=x[i] * way,
                velocity=v[i] * way,
            ) for i in range(len(masses))
        ]  # fmt: skip
        neighbours = [
            mbd.Contact(a.name, a, b, SPHERE, SPHERE, restitution=e, friction=0.4)
            for a, b in itertools.pairwise(bodies)
        ]
        mechanism = mbd.Mechanism(bodies, contacts=neighbours, gravity=[0.0, 0.0, 0.0])
        method = mbd.ContactImpulse(impacts=mbd.Located(6), impact_law=LAWS[law])
        sol = moved(mechanism, 0.1, 1, method)
        pose = [mechanism.pose(sol.q[-1], b.name).position @ way for b in bodies]
        twist = [mechanism.twist(sol.v[-1], b.name).linear @ way for b in bodies]
        return (jnp.stack(pose), jnp.stack(twist)), sol.result

    return jax.jvp(after, (e,), (jnp.ones_like(e),), has_aux=True)


def one_after_another(masses, x, v, e, t=0.1):
    """The same by its events."""
    x, v = x.copy(), v.copy()
    while True:
        approach = v[:-1] - v[1:]
        gaps = np.maximum(x[1:] - x[:-1] - 2 * R, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.where(approach > 1e-12, gaps / approach, np.inf)
        i = np.argmin(times)
        if times[i] > t:
            return x + v * t, v
        x, t = x + v * times[i], t - times[i]
        impulse = (1 + e) * approach[i] / (1 / masses[i] + 1 / masses[i + 1])
        v[i] -= impulse / masses[i]
        v[i + 1] += impulse / masses[i + 1]


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_newtons_cradle(law):
    """Balls with small gaps strike one after the other. Equal elastic balls leave as many as came.
    From ball to ball v grows by (1 + e) m / (m + m'), here with the derivative of the last one."""
    equal, falling = np.ones(4), np.array([1.0, 0.6, 0.5, 0.2])
    gaps = np.array(
        [[1e-2, 1e-4, 1e-4], [1e-2, 1e-6, 3e-5], [1e-3, 1e-2, 1e-7], [1e-2, 3e-4, 1e-3]]
    )
    x = 2 * R * np.arange(4) + np.concatenate([np.zeros((4, 1)), np.cumsum(gaps, 1)], 1)
    v = np.array([[1.0, 0, 0, 0], [1.0, 0, 0, 0], [2.0, 2.0, 0, 0], [3.0, 0, 0, 0]])
    e, masses = np.array([1.0, 0.9, 1.0, 0.8]), np.array([equal, equal, equal, falling])
    (places, speeds), (_, slopes), result = jax.device_get(struck(law, masses, x, v, e))
    assert np.all(result == mbd.RESULTS.successful)
    for k in range(4):
        expected = one_after_another(masses[k], x[k], v[k], e[k])
        np.testing.assert_allclose((places[k], speeds[k]), expected, atol=1e-9)
    np.testing.assert_allclose(speeds[[0, 2]], [[0, 0, 0, 1.0], [0, 0, 2.0, 2.0]], atol=1e-9)
    shares = falling[:-1] / (falling[:-1] + falling[1:])
    np.testing.assert_allclose(speeds[3, 3], 3.0 * np.prod(1.8 * shares), rtol=1e-9)
    np.testing.assert_allclose(slopes[3, 3], 3 / 1.8 * speeds[3, 3], rtol=1e-8)


NODES, LINK, LIGHT = 6, 0.05, 1e-6


@jax.jit
@jax.vmap
def chain(heavy, mu):
    """The speed at which 1 kg rises and another load sinks after 1 ms, at the ends of a light chain
    over a post, and its derivative by friction. The joints lie on the post: a point of a link
    touches it there."""

    def speed(mu):
        turn = np.pi / NODES
        radius = LINK / (2 * np.sin(turn / 2))
        angles = np.pi / 2 - turn * (np.arange(NODES) - (NODES - 1) / 2)
        nodes = radius * np.stack([np.cos(angles), 0 * angles, np.sin(angles)], 1)
        tip, post, y = 1e-9, mbd.Sphere(radius), [0.0, 1.0, 0.0]
        down = np.array([0.0, 0.0, -LINK])
        loads = [mbd.Inertia.sphere(radius=1e-4, mass=m) for m in (1.0, heavy)]
        first = mbd.Body("rising", loads[0], position=nodes[0] + down)
        last = mbd.Body("sinking", loads[1], position=nodes[-1] + down)
        light = mbd.Inertia.rod(length=LINK, mass=LIGHT)
        links = [
            mbd.Body(f"{i}", light, position=(a + b) / 2)
            for i, (a, b) in enumerate(itertools.pairwise(nodes))
        ]
        bodies = [first, *links, last]
        joints = [
            mbd.Revolute(f"{i}", a, b, point=x, axis=y)
            for i, (a, b, x) in enumerate(zip(bodies, bodies[1:], nodes, strict=False))
        ]
        contacts = []
        for i, (body, x) in enumerate(zip([links[0], *links], nodes, strict=True)):
            end = jnp.asarray((1 + tip / radius) * x - body.pose.position)
            own = mbd.Pose(end, jnp.array([1.0, 0.0, 0.0, 0.0]))
            of = dict(frame_b=own, friction=mu)
            contacts.append(mbd.Contact(f"{i}", "ground", body, post, mbd.Sphere(tip), **of))
        mechanism = mbd.Mechanism(bodies, joints, contacts=contacts, gravity=[0, 0, -G], plane=FLAT)
        sol = moved(mechanism, 1e-3, 1)
        v = [mechanism.twist(sol.v[-1], name).linear[2] for name in ("rising", "sinking")]
        return jnp.stack(v), sol.result

    return jax.jvp(speed, (mu,), (jnp.ones_like(mu),), has_aux=True)


@pytest.mark.slow
def test_a_chain_over_a_post():
    """Each joint turns the chain by w and holds (1 + mu tan(w/2)) / (1 - mu tan(w/2)) times as much
    on one side as on the other, in the limit of many joints e^(mu pi) in all. Beyond it loads m
    and m' sink with (m' - m ratio) / (m' + m ratio) g. Within it they stay."""
    mu = np.array([0.2, 0.2, 0.2, 0.5, 0.5])
    t = np.tan(np.pi / NODES / 2)
    ratio = ((1 + mu * t) / (1 - mu * t)) ** NODES
    d_ratio = ratio * NODES * 2 * t / (1 - (mu * t) ** 2)
    heavy = ratio * np.array([0.7, 0.998, 1.002, 0.998, 1.5])
    found, slope, result = jax.device_get(chain(heavy, mu))
    assert np.all(result == mbd.RESULTS.successful)
    a = np.maximum(0.0, (heavy - ratio) / (heavy + ratio)) * G
    da = np.where(a > 0, -2 * heavy / (heavy + ratio) ** 2 * d_ratio, 0.0) * G
    np.testing.assert_allclose(found, 1e-3 * np.stack([a, -a], 1), atol=1e-7)
    np.testing.assert_allclose(slope, 1e-3 * np.stack([da, -da], 1), atol=1e-6)


@jax.jit
@jax.vmap
def three(angle, mass, ground, balls):
    """The speed of a ball of some mass on two balls that stand apart, after three steps, and the
    forces of the ground and between balls, to one side. The angle is that of the lines of centres
    from the vertical."""
    x, z = 2 * R * jnp.sin(angle), R + 2 * R * jnp.cos(angle)
    low = [
        mbd.Body(f"{side}", BALL, position=jnp.stack([side * x, 0 * x, R + 0 * x]))
        for side in (-1, 1)
    ]
    inertia = mbd.Inertia.sphere(radius=R, mass=mass)
    top = mbd.Body("top", inertia, position=jnp.stack([0 * x, 0 * x, z]))
    contacts = [
        *(mbd.Contact(f"g{b.name}", "ground", b, GROUND, SPHERE, friction=ground) for b in low),
        *(mbd.Contact(b.name, b, top, SPHERE, SPHERE, friction=balls) for b in low),
    ]
    of = dict(gravity=[0, 0, -G], plane=FLAT)
    mechanism = mbd.Mechanism([*low, top], contacts=contacts, **of)
    sol = moved(mechanism, 1e-3, 3)
    return sol.v[-1], jnp.abs(sol.contact_force[-1]), sol.result


@pytest.mark.slow
def test_angle_of_repose_of_three_balls():
    """One ball on two that stand apart, with lines of centres at an angle w from the vertical. By
    the balance of each ball, half the weight of the upper one is the normal force between balls,
    friction is tan(w / 2) times it in both contacts of a lower ball. So the pile stands while both
    coefficients allow it: tan(w / 2) between balls, m / (m + 2 M) tan(w / 2) on the ground."""
    angle = np.repeat([0.6, 0.9], 4)
    mass = np.repeat([1.0, 5.0], 4)
    balls = np.tan(angle / 2)
    ground = mass / (mass + 2 * M) * balls
    shares = np.tile([[1.01, 1.01], [0.99, 1.01], [1.01, 0.99], [3.0, 3.0]], (2, 1))
    v, force, result = jax.device_get(
        three(angle, mass, ground * shares[:, 0], balls * shares[:, 1])
    )
    assert np.all(result == mbd.RESULTS.successful)
    stands = np.all(shares > 1, axis=1)
    np.testing.assert_allclose(v[stands], 0.0, atol=1e-9)
    half = mass[stands] * G / 2
    expected = [half + M * G, half * balls[stands], half, half * balls[stands]]
    found = force[stands]
    np.testing.assert_allclose(found[:, 0], found[:, 1], rtol=1e-9)
    np.testing.assert_allclose(found[:, 2], found[:, 3], rtol=1e-9)
    np.testing.assert_allclose(found[:, ::2].reshape(-1, 4).T, expected, rtol=1e-8)
    assert np.all(v[~stands][:, 5] < -1e-5)


HEIGHT, THICKNESS, SPACE, DOMINOES, PUSH = 0.05, 0.009, 0.02, 8, 5.0
PITCH = SPACE + THICKNESS


def strikes():
    """When each domino but the first is struck. The dominoes turn about their front edges and lean
    on each other without friction, so that they have one freedom, the angle of the foremost one,
    and keep their energy. It strikes the next one without a rebound.

    Reference: van Leeuwen (2010), The domino effect, American Journal of Physics 78."""

    def leaning(angle, count):
        """Sum of the squares of all rates over that of the foremost domino, and potential energy
        per mass. The front edge of each lies on the back of the next one: height * sin(a - b) =
        pitch * cos(b) - thickness."""
        angles, rates = [angle], [1 + 0 * angle]
        for _ in range(count - 1):
            b = angles[-1]
            lead = np.arcsin((PITCH * np.cos(b) - THICKNESS) / HEIGHT)
            rates.append(rates[-1] * (1 - PITCH * np.sin(b) / (HEIGHT * np.cos(lead))))
            angles.append(b + lead)
        a = np.array(angles)
        height = (HEIGHT * np.cos(a) + THICKNESS * np.sin(a)) / 2
        return np.sum(np.square(rates), axis=0), G * np.sum(height, axis=0)

    nodes, weights = np.polynomial.legendre.leggauss(40)
    inertia, end = (HEIGHT**2 + THICKNESS**2) / 3, np.arcsin(SPACE / HEIGHT)
    rate, times = PUSH, []
    for count in range(1, DOMINOES):
        squares, potential = leaning(np.zeros(()), count)
        energy = potential + inertia * squares * rate**2 / 2
        squares, potential = leaning(end * np.append((nodes + 1) / 2, 1.0), count)
        rates = np.sqrt(2 * (energy - potential) / (inertia * squares))
        times.append(np.sum(weights / rates[:-1]) * end / 2)
        # The impulse acts at the same height on both.
        rate = rates[-1] * squares[-1] / (squares[-1] + 1)
    return np.cumsum(times)


@functools.partial(jax.jit, static_argnames=("steps", "duration"))
def toppling(steps, duration):
    """Velocities of all dominoes along their row after each step."""
    size, front = [THICKNESS, 0.02, HEIGHT], [0.0, 1.0, 0.0]
    box, inertia = mbd.Box(size=size), mbd.Inertia.box(size=size, mass=0.01)
    bodies, hinges = [], []
    for i in range(DOMINOES):
        x = i * PITCH
        velocity = dict(angular_velocity=[0, PUSH, 0])
        velocity["velocity"] = [PUSH * HEIGHT / 2, 0, PUSH * THICKNESS / 2]
        place = [x - THICKNESS / 2, 0, HEIGHT / 2]
        bodies.append(mbd.Body(f"{i}", inertia, position=place, **velocity if i == 0 else {}))
        limits = dict(point=[x, 0, 0], axis=front, limits=(0.0, 2.0))
        hinges.append(mbd.Revolute(f"{i}", "ground", bodies[-1], **limits))
    contacts = [
        *(mbd.JointLimit(hinge) for hinge in hinges),  # they cannot fall backwards
        *(mbd.Contact(f"on {b.name}", a, b, box, box) for a, b in itertools.pairwise(bodies)),
    ]
    mechanism = mbd.Mechanism(bodies, hinges, contacts=contacts, gravity=[0, 0, -G], plane=FLAT)
    saveat = diffrax.SaveAt(steps=1)
    sol = moved(mechanism, duration / steps, steps, saveat=saveat)
    return sol.t, sol.v[:, :DOMINOES], sol.result


@pytest.mark.slow
def test_speed_of_a_domino_wave():
    """Impacts act in the step in which a gap would close, and the steps are of first order, so that
    a few steps are lost in all. From domino to domino the wave becomes faster, from 0.3 to 1.1 m/s
    or 1.6 sqrt(g height)."""
    exact, steps = strikes(), 1000
    dt = 1.02 * exact[-1] / steps
    t, v, result = jax.device_get(toppling(steps, 1.02 * exact[-1]))
    assert result == mbd.RESULTS.successful
    found = t[np.argmax(v[:, 1:] > 1e-6, axis=0)]
    late = (found - exact) / dt
    assert np.all((late > 0.5) & (late < 3.5))
    np.testing.assert_allclose(PITCH / np.diff(found), PITCH / np.diff(exact), rtol=0.03)


class Bowl(mbd.AbstractSystem):
    """A ball of radius R in a round bowl about the origin, in a plane: x, z and its angle, over the
    inertia of 1 kg."""

    length: float = 0.4  # from the centre of the bowl to that of the ball

    def mass_matrix(self, q):
        return jnp.diag(jnp.array([1.0, 1.0, 0.4 * R**2]))

    def force(self, t, q, v, u):
        return jnp.array([0.0, -G, 0.0])

    def gap(self, q, t):
        return self.length - jnp.sqrt(q[:2] @ q[:2])[None]

    def slip(self, q, v, t):
        n = q[:2] / jnp.sqrt(q[:2] @ q[:2])
        return (n[0] * v[1] - n[1] * v[0] + R * v[2])[None, None]

    @property
    def contact_law(self):
        return mbd.ContactLaw(2.0)


@jax.jit
@jax.vmap
def rolled(q, dt):
    """Coordinates and velocities after 200 and 400 steps from rest."""
    state, saveat = mbd.State(0.0, q, jnp.zeros(3)), diffrax.SaveAt(steps=200)
    method = mbd.ContactImpulse()
    of = dict(dt=dt, num_steps=400, saveat=saveat, throw=False)
    sol = mbd.simulate(Bowl(), method, state, **of)
    return sol.q, sol.v


@pytest.mark.slow
def test_a_ball_in_a_bowl():
    """It rolls as a pendulum of 7/5 of its length: from rest at an angle a its centre is at the
    bottom after a quarter of the period, with v^2 = 10/7 g length (1 - cos(a)) and the spin v / R
    against it. Steps are of first order; the extrapolation to none agrees."""
    length, a = Bowl().length, 1.2
    x, y = 1.0, np.cos(a / 2)
    for _ in range(6):  # the mean of Gauss
        x, y = (x + y) / 2, np.sqrt(x * y)
    quarter = np.pi / (2 * x) / np.sqrt(5 * G / (7 * length))
    start = length * np.array([[np.sin(a), -np.cos(a), 0.0]] * 2)
    q, v = jax.device_get(rolled(start, quarter / np.array([200, 400])))
    speed = np.sqrt(10 / 7 * G * length * (1 - np.cos(a)))
    exact = np.array([0.0, -length, -speed, 0.0, speed])
    found = np.concatenate([q[..., :2], v * [1, 1, R]], axis=-1)
    coarse, fine = found[0, 0] - exact, found[1, 1] - exact
    assert np.max(np.abs(coarse)) < 0.02
    np.testing.assert_allclose(2 * fine, coarse, atol=5e-5)


@jax.jit
@jax.vmap
def stacked(heavy):
    """Velocities and forces of ten cubes of 1 kg, the uppermost heavier, after 20 steps."""
    size, count = [0.2, 0.2, 0.2], 10
    cube, bodies = mbd.Box(size=size), []
    for i in range(count):
        mass = heavy if i == count - 1 else 0 * heavy + 1.0
        place = [0.01 * (-1) ** i, 0.0, 0.1 + 0.2 * i]
        bodies.append(mbd.Body(f"{i}", mbd.Inertia.box(size=size, mass=mass), position=place))
    pieces = [("ground", GROUND), *((body, cube) for body in bodies)]
    near = mbd.contacts_among(pieces, law=mbd.ContactLaw(0.5), pair_budget=5 * count)
    mechanism = mbd.Mechanism(bodies, contacts=near, gravity=[0, 0, -G], contact_budget=100)
    sol = moved(mechanism, 2e-3, 20)
    force = mbd.reports.contact_forces(mechanism, sol)[-1]
    return sol.v[-1], force, sol.contact_pairs[-1], sol.contact_residual[-1]


@pytest.mark.slow
def test_a_stack_with_a_heavy_box_on_top():
    """It stands, and each box bears the weight of all above it."""
    heavy = np.array([1.0, 1e2, 1e4])
    v, force, pairs, residual = jax.device_get(stacked(heavy))
    assert np.all(residual < 1e-8)
    np.testing.assert_allclose(v, 0.0, atol=1e-8)
    for k, mass in enumerate(heavy):
        for i in range(10):
            on = (np.max(pairs[k, :, :2], axis=1) == i + 1) & (np.min(pairs[k, :, :2], axis=1) == i)
            borne = np.abs(np.sum(force[k, on], axis=0))
            np.testing.assert_allclose(
                borne, [0, 0, (9 - i + mass) * G], rtol=1e-8, atol=1e-6 * mass
            )
