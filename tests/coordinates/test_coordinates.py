"""Kinematic maps and rotation algebra against closed forms and SciPy's rotations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxmbd import _coordinates as co
from jaxmbd._results import RESULTS

X, Y, Z = jnp.eye(3)
TURN_X, TURN_Y, TURN_Z = (jnp.array([1.0, *e]) / jnp.sqrt(2.0) for e in np.eye(3))  # +90 degrees

ROTATIONS = {  # map, a way to a rotation matrix, whether its velocity is in world axes
    "quaternion_world": (co.QuaternionWorld(), co.quaternion_to_matrix, True),
    "quaternion_body": (co.QuaternionBody(), co.quaternion_to_matrix, False),
    "rpy_world": (co.RollPitchYawWorld(), co.rpy_to_matrix, True),
    "rpy_body": (co.RollPitchYawBody(), co.rpy_to_matrix, False),
}
MAPS = {name: map_ for name, (map_, _, _) in ROTATIONS.items()} | {
    "plain": co.Plain(3),
    "product": co.Product(co.Plain(3), co.QuaternionWorld(), co.RollPitchYawBody()),
}
jit = eqx.filter_jit

all_rotations = pytest.mark.parametrize("name", ROTATIONS)
all_maps = pytest.mark.parametrize("name", MAPS)


def random_coordinates(map_, key):
    """Valid coordinates, roll-pitch-yaw at least 0.57 rad away from gimbal lock."""
    if isinstance(map_, co.Product):
        keys = jr.split(key, len(map_.parts))
        return jnp.concatenate([random_coordinates(p, k) for p, k in zip(map_.parts, keys)])
    if isinstance(map_, co.RollPitchYawWorld | co.RollPitchYawBody):
        return jr.uniform(key, (3,), minval=-1, maxval=1)
    return map_.normalise(jr.normal(key, (map_.nq,)))


def scipy_matrix(rotation_vector):
    return Rotation.from_rotvec(np.array(rotation_vector)).as_matrix()


def scipy_quaternion(matrix):
    return np.roll(Rotation.from_matrix(np.array(matrix)).as_quat(canonical=True), 1)


# --- rotation algebra ---------------------------------------------------------------------------


def test_quaternion_units():
    """ij = k, jk = i, ki = j, ii = -1: the Hamilton product, and its order."""
    one, i, j, k = jnp.eye(4)
    product = co.quaternion_product
    for a, b, c in [(i, j, k), (j, k, i), (k, i, j)]:
        assert jnp.array_equal(product(a, b), c)
        assert jnp.array_equal(product(b, a), -c)
        assert jnp.array_equal(product(a, a), -one)
        assert jnp.array_equal(product(a, co.quaternion_conjugate(a)), one)


def test_signs():
    """A quarter turn about z brings x to y, about x y to z, about y z to x, in all forms."""
    quarter = jnp.pi / 2
    for turn, axis, before, after in [
        (TURN_Z, 2, X, Y),
        (TURN_X, 0, Y, Z),
        (TURN_Y, 1, Z, X),
    ]:
        e = jnp.eye(3)[axis]
        assert jnp.allclose(co.quaternion_rotate(turn, before), after, atol=1e-15)
        assert jnp.allclose(co.quaternion_to_matrix(turn) @ before, after, atol=1e-15)
        assert jnp.allclose(co.rpy_to_matrix(quarter * e) @ before, after, atol=1e-15)
        assert jnp.allclose(co.rpy_to_quaternion(quarter * e), turn, atol=1e-15)
        assert jnp.allclose(co.quaternion_exp(quarter * e), turn, atol=1e-15)
        assert jnp.allclose(co.quaternion_log(turn), quarter * e, atol=1e-15)
        assert jnp.allclose(co.skew(e) @ before, after)
        assert jnp.array_equal(co.cross(e, before), after)


def test_vectors(getkey):
    a, b = jr.normal(getkey(), (2, 3))
    assert jnp.allclose(co.cross(a, b), jnp.cross(a, b), rtol=1e-15, atol=1e-15)
    assert jnp.allclose(co.skew(a) @ b, co.cross(a, b), rtol=1e-15, atol=1e-15)
    assert jnp.allclose(co.dot(a, b), jnp.sum(a * b), rtol=1e-15)


def test_rotation_forms_agree(getkey):
    """Matrix, quaternion and angles of random rotations: each against SciPy, and round."""
    for _ in range(20):
        phi, r = jr.normal(getkey(), (2, 3))
        R = scipy_matrix(phi)
        p = co.quaternion_exp(phi)
        q = co.quaternion_to_rpy(p)
        near = {"rtol": 0, "atol": 2e-15}
        assert np.allclose(co.quaternion_to_matrix(p), R, **near)
        assert np.allclose(co.quaternion_rotate(p, r), R @ r, rtol=0, atol=1e-14)
        assert np.allclose(co.quaternion_from_matrix(jnp.asarray(R)), scipy_quaternion(R), **near)
        assert np.allclose(q, Rotation.from_matrix(R).as_euler("ZYX")[::-1], rtol=0, atol=1e-13)
        assert np.allclose(co.rpy_to_matrix(q), R, **near)
        assert np.allclose(co.quaternion_to_matrix(co.rpy_to_quaternion(q)), R, **near)
        assert np.allclose(
            co.quaternion_log(p), Rotation.from_matrix(R).as_rotvec(), rtol=0, atol=1e-14
        )


@pytest.mark.parametrize("angle", [0.0, 1e-200, 1e-8, 0.3, 0.39, 0.41, 0.99, 1.01, 3.0, 3.14159])
def test_exp_log(angle, getkey):
    """Both sides of each switch between series and closed form; the norm is exact to rounding."""
    axis = jr.normal(getkey(), (3,))
    phi = angle * axis / jnp.sqrt(axis @ axis)
    p = co.quaternion_exp(phi)
    assert abs(jnp.sum(p * p) - 1) < 1e-15
    assert np.allclose(p, [np.cos(angle / 2), *(np.sinc(angle / 2 / np.pi) / 2 * phi)], atol=2e-16)
    assert np.allclose(co.quaternion_log(p), phi, rtol=2e-15, atol=0)
    assert np.allclose(co.quaternion_log(-3 * p), phi, rtol=2e-15, atol=0)


def test_leading_axes():
    """Batches as of saved times, broadcast with single vectors, against SciPy's rotations."""
    rng = np.random.default_rng(5)
    turns = Rotation.from_rotvec(rng.normal(size=(6, 3)))
    p = turns.as_quat(scalar_first=True).reshape(2, 3, 4)
    a, b = rng.normal(size=(3, 3)), rng.normal(size=3)
    near = dict(rtol=1e-12, atol=1e-14)

    @jax.jit
    def found(p, a, b):
        R, rpy = co.quaternion_to_matrix(p), co.quaternion_to_rpy(p)
        return dict(
            one=co.quaternion_rotate(p, b),
            each=co.quaternion_rotate(p, a),
            several=co.quaternion_rotate(p[0, 0], a),
            back=co.quaternion_rotate(co.quaternion_conjugate(p), b),
            matrix=R,
            again=co.quaternion_from_matrix(R),
            vector=co.quaternion_log(p),
            quaternion=co.quaternion_exp(co.quaternion_log(p)),
            rpy=rpy,
            from_rpy=co.rpy_to_matrix(rpy),
            same=co.rpy_to_quaternion(rpy),
            product=co.quaternion_product(p, p[0, 1]),
            cross=co.cross(p[..., 1:], a),
            skew=co.skew(a),
        )

    x = {name: np.asarray(x) for name, x in found(p, a, b).items()}
    matrices, second = turns.as_matrix().reshape(2, 3, 3, 3), turns[1]
    np.testing.assert_allclose(x["one"], turns.apply(b).reshape(2, 3, 3), **near)
    np.testing.assert_allclose(x["each"], np.einsum("ijkl,jl->ijk", matrices, a), **near)
    np.testing.assert_allclose(x["several"], turns[0].apply(a), **near)
    np.testing.assert_allclose(x["back"], turns.inv().apply(b).reshape(2, 3, 3), **near)
    np.testing.assert_allclose(x["vector"], turns.as_rotvec().reshape(2, 3, 3), **near)
    yaw_pitch_roll = turns.as_euler("ZYX").reshape(2, 3, 3)
    np.testing.assert_allclose(x["rpy"], yaw_pitch_roll[..., ::-1], **near)
    for name in ("matrix", "from_rpy"):
        np.testing.assert_allclose(x[name], matrices, **near)
    positive = p * np.sign(p[..., :1])
    for name in ("again", "quaternion", "same"):
        np.testing.assert_allclose(x[name] * np.sign(x[name][..., :1]), positive, **near)
    product = (turns * second).as_matrix().reshape(2, 3, 3, 3)
    found_product = jax.jit(co.quaternion_to_matrix)(x["product"])
    np.testing.assert_allclose(found_product, product, **near)
    np.testing.assert_allclose(x["cross"], np.cross(p[..., 1:], a), **near)
    np.testing.assert_allclose(x["skew"] @ b, np.cross(a, b), **near)
    for bad, words in ((np.zeros((2, 3)), "Incompatible shapes"), (np.zeros(4), "must have shape")):
        with pytest.raises(ValueError, match=words):
            co.quaternion_rotate(p, bad)


@pytest.mark.parametrize("axis", [X, Y, Z, (X + Y) / jnp.sqrt(2.0), (X - Y + Z) / jnp.sqrt(3.0)])
@pytest.mark.parametrize("angle", [0.0, 2.0, jnp.pi - 1e-9, jnp.pi])
def test_from_matrix_near_half_turns(axis, angle):
    """Where the trace formula divides by zero; at exactly pi the sign of p is free."""
    p = co.quaternion_exp(angle * axis)
    found = co.quaternion_from_matrix(co.quaternion_to_matrix(p))
    assert min(jnp.abs(found - p).max(), jnp.abs(found + p).max()) < 1e-15


@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
def test_derivatives_at_no_rotation(jacobian):
    """First-order rotation: p = (1, phi/2), R = I + skew(phi); nothing is NaN at angle 0."""
    zero, one = jnp.zeros(3), jnp.array([1.0, 0.0, 0.0, 0.0])
    half = jnp.concatenate([jnp.zeros((1, 3)), jnp.eye(3) / 2])
    generators = jnp.stack([co.skew(e) for e in (X, Y, Z)], axis=-1)
    assert jnp.array_equal(jit(jacobian(co.quaternion_exp))(zero), half)
    assert jnp.array_equal(jit(jacobian(co.quaternion_log))(one), 4 * half.T)
    assert jnp.array_equal(jit(jacobian(co.rpy_to_quaternion))(zero), half)
    assert jnp.array_equal(jit(jacobian(co.quaternion_to_rpy))(one), 4 * half.T)
    assert jnp.array_equal(jit(jacobian(co.rpy_to_matrix))(zero), generators)

    def there_and_back(phi):
        R = co.quaternion_to_matrix(co.quaternion_exp(phi))
        return co.quaternion_log(co.quaternion_from_matrix(R))

    assert jnp.allclose(jit(jacobian(there_and_back))(zero), jnp.eye(3), atol=1e-15)


def test_higher_derivatives_of_exp():
    """Along an axis p = (cos(s/2), e sin(s/2)): third derivatives on both sides of the switch."""
    axis = jnp.array([2.0, -1.0, 2.0]) / 3
    curve = lambda s: co.quaternion_exp(s * axis)  # noqa: E731
    third = jit(jax.jacfwd(jax.jacfwd(jax.jacfwd(curve))))
    for s in [0.0, 0.5, 0.999, 1.001, 2.0]:
        expected = jnp.concatenate([jnp.sin(s / 2)[None], -jnp.cos(s / 2) * axis]) / 8
        assert jnp.allclose(third(s), expected, rtol=0, atol=1e-14)


def test_higher_derivatives_of_log():
    """log(exp(phi + s d)) is a straight line in s: its third derivative is 0 everywhere."""
    d = jnp.array([0.3, -0.5, 0.8])
    round_trip = lambda s, phi: co.quaternion_log(co.quaternion_exp(phi + s * d))  # noqa: E731
    third = jit(jax.jacfwd(jax.jacfwd(jax.jacfwd(round_trip))))
    for angle in [0.0, 0.3, 0.39, 0.41, 1.5]:
        assert jnp.allclose(third(0.0, angle * Y), 0, rtol=0, atol=1e-13), angle


@pytest.mark.parametrize("phi", [0.3, 0.39, 0.41, 1.0, 3.0])
def test_derivative_of_log_inverts_that_of_exp(phi, getkey):
    axis = jr.normal(getkey(), (3,))
    phi = phi * axis / jnp.sqrt(axis @ axis)
    of_exp = jit(jax.jacrev(co.quaternion_exp))(phi)
    of_log = jit(jax.jacfwd(co.quaternion_log))(co.quaternion_exp(phi))
    assert jnp.allclose(of_log @ of_exp, jnp.eye(3), rtol=0, atol=1e-13)


# --- kinematic maps -----------------------------------------------------------------------------


def test_explicit_rates():
    """Signs and factors written out by hand, for 2 rad/s about x after a quarter turn about z."""
    v = 2 * X
    half = 1 / jnp.sqrt(2.0)
    # 1/2 (0, 2, 0, 0) (c, 0, 0, c) = c (0, 1, -1, 0), and the other order c (0, 1, 1, 0)
    world = co.QuaternionWorld().qdot(TURN_Z, v)
    body = co.QuaternionBody().qdot(TURN_Z, v)
    assert jnp.allclose(world, half * jnp.array([0, 1.0, -1.0, 0]), atol=1e-15)
    assert jnp.allclose(body, half * jnp.array([0, 1.0, 1.0, 0]), atol=1e-15)
    # yawed by 90 degrees, world x is the body's -y: pitching down; body x is always rolling
    yawed = jnp.pi / 2 * Z
    assert jnp.allclose(co.RollPitchYawWorld().qdot(yawed, v), -2 * Y, atol=1e-15)
    assert jnp.allclose(co.RollPitchYawBody().qdot(yawed, v), 2 * X, atol=1e-15)
    # pitched up by 30 degrees, turning about world z needs roll 0, yaw only
    pitched = jnp.pi / 6 * Y
    assert jnp.allclose(co.RollPitchYawWorld().qdot(pitched, Z), Z, atol=1e-15)
    expected = jnp.array([jnp.tan(jnp.pi / 6), 0, 1 / jnp.cos(jnp.pi / 6)])
    assert jnp.allclose(co.RollPitchYawBody().qdot(pitched, Z), expected, atol=1e-15)


@all_rotations
def test_rates_turn_the_matrix(name, getkey):
    """R' = skew(omega_world) R = R skew(omega_body): the definition of angular velocity."""
    map_, to_matrix, world = ROTATIONS[name]
    for _ in range(5):
        q, v = random_coordinates(map_, getkey()), jr.normal(getkey(), (3,))
        R, rate = jax.jvp(to_matrix, (q,), (map_.qdot(q, v),))
        expected = co.skew(v) @ R if world else R @ co.skew(v)
        assert jnp.allclose(rate, expected, rtol=0, atol=1e-13)


@all_rotations
def test_retract_is_the_exact_rotation(name, getkey):
    """Constant angular velocity: exp(skew(dp)) R in world axes, R exp(skew(dp)) in body axes."""
    map_, to_matrix, world = ROTATIONS[name]
    for size in [1e-6, 0.1, 1.5]:
        q, dp = random_coordinates(map_, getkey()), size * jr.normal(getkey(), (3,))
        R, turn = to_matrix(q), scipy_matrix(dp)
        after = to_matrix(map_.retract(q, dp))
        assert np.allclose(after, turn @ R if world else R @ turn, rtol=0, atol=1e-14)


@all_maps
@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
def test_retract_starts_along_the_rates(name, jacobian, getkey):
    """d(q (+) dp) / d(dp) = N(q) at dp = 0, and nothing moves at dp = 0."""
    map_ = MAPS[name]
    q, zero = random_coordinates(map_, getkey()), jnp.zeros(map_.nv)
    assert jnp.allclose(jit(map_.retract)(q, zero), q, rtol=0, atol=1e-15)
    N = jit(jax.jacfwd(map_.qdot, argnums=1))(q, zero)
    assert N.shape == (map_.nq, map_.nv)
    slope = jit(jacobian(map_.retract, argnums=1))(q, zero)
    assert jnp.allclose(slope, N, rtol=0, atol=2e-14)


@all_maps
@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
def test_difference_takes_back_what_retract_gives(name, jacobian, getkey):
    """q (+) dp (-) q = dp up to half a turn, with derivative 1, also where nothing has moved."""
    map_ = MAPS[name]
    q, zero = random_coordinates(map_, getkey()), jnp.zeros(map_.nv)

    def there_and_back(dp):
        return map_.difference(q, map_.retract(q, dp))

    for dp in (zero, jr.normal(getkey(), (map_.nv,)) / 2):
        assert jnp.allclose(there_and_back(dp), dp, rtol=0, atol=1e-14)
        slope = jit(jacobian(there_and_back))(dp)
        assert jnp.allclose(slope, jnp.eye(map_.nv), rtol=0, atol=1e-13)


@all_maps
def test_rates_are_the_derivative_of_motion(name, getkey):
    """A slow literal reference: 400 midpoint steps of q' = N(q) v over one second meet `retract`.

    The midpoint rule's error is about 1 / 400^2 = 6e-6; a wrong sign or factor would give 0.1.
    """
    map_ = MAPS[name]
    q, v = random_coordinates(map_, getkey()), jr.normal(getkey(), (map_.nv,)) / 4
    h = 1 / 400

    def step(_, q):
        return q + h * map_.qdot(q + h / 2 * map_.qdot(q, v), v)

    assert jnp.allclose(jax.lax.fori_loop(0, 400, step, q), map_.retract(q, v), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "world, body, matrix",
    [
        (co.QuaternionWorld(), co.QuaternionBody(), co.quaternion_to_matrix),
        (co.RollPitchYawWorld(), co.RollPitchYawBody(), co.rpy_to_matrix),
    ],
)
def test_world_and_body_velocities_agree(world, body, matrix, getkey):
    """omega_world = R omega_body gives the same rates and the same displacement."""
    q, v_body = random_coordinates(world, getkey()), jr.normal(getkey(), (3,))
    v_world = matrix(q) @ v_body
    assert jnp.allclose(world.qdot(q, v_world), body.qdot(q, v_body), rtol=0, atol=1e-14)
    assert jnp.allclose(world.retract(q, v_world), body.retract(q, v_body), rtol=0, atol=1e-14)


def test_quaternion_norm_stays(getkey):
    """Norm 1 to rounding after 10000 large displacements: exact, not just second order."""
    map_ = co.QuaternionWorld()
    dps = 3 * jr.normal(getkey(), (10_000, 3))
    q, _ = jax.lax.scan(lambda q, dp: (map_.retract(q, dp), None), TURN_X, dps)
    assert abs(jnp.sqrt(q @ q) - 1) < 1e-13


def test_quaternion_normalise_and_report():
    map_ = co.QuaternionBody()
    assert jnp.allclose(map_.normalise(1.3 * TURN_X), TURN_X, atol=1e-15)
    assert map_.result(1.3 * TURN_X) == RESULTS.successful
    for bad in [jnp.zeros(4), 0.4 * TURN_X, 2.1 * TURN_X, jnp.full(4, jnp.nan)]:
        assert map_.result(bad) == RESULTS.invalid_coordinates
    for jacobian in [jax.jacfwd, jax.jacrev]:
        assert jnp.isfinite(jit(jacobian(map_.normalise))(jnp.zeros(4))).all()


@pytest.mark.parametrize("map_", [co.RollPitchYawWorld(), co.RollPitchYawBody()])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gimbal_lock(map_, sign):
    """At pitch = +-90 degrees: a report, finite values and derivatives, a right displacement."""
    q, v, zero = jnp.array([0.3, sign * jnp.pi / 2, -0.4]), jnp.array([0.1, 0.2, 0.3]), jnp.zeros(3)
    assert map_.result(q) == RESULTS.gimbal_lock
    assert map_.result(q + 1e-5 * Y) == RESULTS.successful
    assert type(map_)(tolerance=1e-4).result(q + 1e-5 * Y) == RESULTS.gimbal_lock
    assert jnp.isfinite(map_.qdot(q, v)).all()
    for jacobian in [jax.jacfwd, jax.jacrev]:
        assert all(jnp.isfinite(d).all() for d in jit(jacobian(map_.qdot, argnums=(0, 1)))(q, v))
        slope = jit(jacobian(map_.retract, argnums=1))
        for dp in [v, zero]:
            assert jnp.isfinite(slope(q, dp)).all()
    world = isinstance(map_, co.RollPitchYawWorld)
    R, turn = co.rpy_to_matrix(q), scipy_matrix(v)
    assert np.allclose(
        co.rpy_to_matrix(map_.retract(q, v)), turn @ R if world else R @ turn, atol=1e-14
    )


def test_gimbal_lock_of_the_conversion():
    """The angles of a locked quaternion give back the same rotation, also close to the lock."""
    for distance in [0.0, 1e-17, 1e-12, 1e-8, 1e-4]:
        R = co.rpy_to_matrix(jnp.array([0.3, jnp.pi / 2 - distance, -0.4]))
        p = co.quaternion_from_matrix(R)
        assert jnp.allclose(co.rpy_to_matrix(co.quaternion_to_rpy(p)), R, rtol=0, atol=1e-14)
        assert jnp.isfinite(jit(jax.jacrev(co.quaternion_to_rpy))(p)).all()
    exactly = jnp.array([0.5, 0.5, 0.5, -0.5])  # R[0, 0] = R[1, 0] = 0 without rounding
    assert jnp.allclose(co.quaternion_to_rpy(exactly)[1:], jnp.array([jnp.pi / 2, 0.0]))
    for jacobian in [jax.jacfwd, jax.jacrev]:
        assert jnp.isfinite(jit(jacobian(co.quaternion_to_rpy))(exactly)).all()


def test_roll_pitch_yaw_run_on():
    """Three and a half turns of yaw count on, and pitching over the top does not jump back."""
    map_ = co.RollPitchYawWorld()
    q = jnp.zeros(3)
    for _ in range(14):
        q = map_.retract(q, jnp.pi / 4 * 2 * Z)
    assert jnp.allclose(q, 7 * jnp.pi * Z, atol=1e-13)
    q = map_.retract(jnp.pi / 3 * Y, jnp.pi / 3 * Y)
    assert jnp.allclose(q, 2 * jnp.pi / 3 * Y, atol=1e-14)
    assert jnp.allclose(map_.retract(q, 0.1 * Y), q + 0.1 * Y, atol=1e-14)


def test_product_is_its_parts(getkey):
    """One free body: m/s and rad/s go to the right places."""
    map_ = co.Product(co.Plain(3), co.QuaternionWorld())
    assert (map_.nq, map_.nv) == (7, 6)
    r, v, omega = jr.normal(getkey(), (3, 3))
    q, velocity = jnp.concatenate([r, TURN_Y]), jnp.concatenate([v, omega])
    part = co.QuaternionWorld()
    assert jnp.array_equal(map_.qdot(q, velocity), jnp.concatenate([v, part.qdot(TURN_Y, omega)]))
    assert jnp.array_equal(
        map_.retract(q, velocity), jnp.concatenate([r + v, part.retract(TURN_Y, omega)])
    )
    assert jnp.allclose(map_.normalise(q.at[3:].multiply(1.5)), q, atol=1e-15)
    assert map_.result(q) == RESULTS.successful
    assert map_.result(q.at[3:].set(0.0)) == RESULTS.invalid_coordinates
    locked = jnp.array([0.0, 0.0, jnp.pi / 2, 0.0])
    assert co.Product(co.Plain(1), co.RollPitchYawBody()).result(locked) == RESULTS.gimbal_lock


def test_plain_of_any_size():
    q, v = jnp.arange(2.0), jnp.ones(2)
    assert co.Plain().nq is None
    assert jnp.array_equal(co.Plain().qdot(q, v), v)
    assert jnp.array_equal(co.Plain().retract(q, v), q + v)
    assert co.Plain().result(q) == RESULTS.successful


def test_wrong_sizes_are_named():
    with pytest.raises(ValueError, match="`n` of Plain.*at least 0.*-1"):
        co.Plain(-1)
    with pytest.raises(ValueError, match=r"known sizes.*Plain\(3\)"):
        co.Product(co.Plain(), co.QuaternionBody())
    with pytest.raises(ValueError, match=r"`q`.* must have shape \(7,\).*\(8,\)"):
        co.Product(co.Plain(3), co.QuaternionBody()).normalise(jnp.zeros(8))


@all_maps
def test_vmap_equals_loop(name, getkey):
    """Batches first, and structures of arrays with the component first and the body last."""
    map_ = MAPS[name]
    qs = jnp.stack([random_coordinates(map_, getkey()) for _ in range(4)])
    vs = jr.normal(getkey(), (4, map_.nv))
    for f in [jit(map_.qdot), jit(map_.retract)]:
        loop = jnp.stack([f(q, v) for q, v in zip(qs, vs)])
        assert jnp.allclose(jit(jax.vmap(f))(qs, vs), loop, rtol=0, atol=1e-15)
        last = jit(jax.vmap(f, in_axes=-1, out_axes=-1))(qs.T, vs.T)
        assert jnp.allclose(last.T, loop, rtol=0, atol=1e-15)
    assert jit(jax.vmap(lambda q: map_.result(q) == RESULTS.successful))(qs).all()


@all_maps
def test_float32_stays_float32(name, getkey):
    """In float32 the same to 1e-5, a hundred roundings; nothing is promoted."""
    map_ = MAPS[name]
    q, v = random_coordinates(map_, getkey()), jr.normal(getkey(), (map_.nv,)) / 2
    q32, v32 = q.astype(jnp.float32), v.astype(jnp.float32)
    for f in [jit(map_.qdot), jit(map_.retract)]:
        low, high = f(q32, v32), f(q, v)
        assert low.dtype == jnp.float32
        assert jnp.allclose(low.astype(jnp.float64), high, rtol=0, atol=1e-5)
    assert map_.normalise(q32).dtype == jnp.float32


def test_conversions_stay_float32():
    phi = jnp.array([0.3, -0.2, 0.9], jnp.float32)
    p = co.quaternion_exp(phi)
    R = co.quaternion_to_matrix(p)
    q = co.quaternion_to_rpy(p)
    back = co.quaternion_log(co.rpy_to_quaternion(q))
    values = [p, R, q, back, co.quaternion_from_matrix(R), co.rpy_to_matrix(q), co.skew(phi)]
    assert {x.dtype for x in values} == {jnp.dtype(jnp.float32)}
    assert jnp.allclose(back, phi, atol=1e-6)
