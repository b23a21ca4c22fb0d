"""Kinematic maps and rotation algebra against closed forms and SciPy's rotations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_verdicts, both_modes
from scipy.spatial.transform import Rotation

from jaxmbd import _coordinates as co
from jaxmbd._compiler import to_jax
from jaxmbd._results import RESULTS

X, Y, Z = np.eye(3)
TURN_X, TURN_Y, _ = (np.array([1.0, *e]) / np.sqrt(2.0) for e in np.eye(3))  # +90 degrees

ROTATIONS = {  # map, a way to a rotation matrix, whether its velocity is in world axes
    "quaternion_world": (co.QuaternionWorld(), co.quaternion_to_matrix, True),
    "quaternion_body": (co.QuaternionBody(), co.quaternion_to_matrix, False),
    "rpy_world": (co.RollPitchYawWorld(), co.rpy_to_matrix, True),
    "rpy_body": (co.RollPitchYawBody(), co.rpy_to_matrix, False),
}
MAPS = {name: map_ for name, (map_, _, _) in ROTATIONS.items()} | {
    "plain": co.Plain(3),
    "product": co.Product(co.Plain(2), co.QuaternionWorld(), co.Plain(1)),
}
jit = eqx.filter_jit
MODES, to_matrix = (jax.jacfwd, jax.jacrev), co.quaternion_to_matrix


@pytest.fixture
def rng():
    return np.random.default_rng(2026)


def near(found, expected, atol=1e-14):
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def of_unit_length(p):
    return p / np.linalg.norm(p, axis=-1, keepdims=True)


def some_coordinates(map_, rng, n=5):
    """Valid coordinates, roll-pitch-yaw at least 0.57 rad away from gimbal lock."""
    if isinstance(map_, co.Product):
        return np.concatenate([some_coordinates(part, rng, n) for part in map_.parts], axis=1)
    if isinstance(map_, co.RollPitchYawWorld | co.RollPitchYawBody):
        return rng.uniform(-1, 1, (n, 3))
    q = rng.normal(size=(n, map_.nq))
    return q if isinstance(map_, co.Plain) else of_unit_length(q)


def skew(a):
    return np.cross(np.eye(3), a)


@eqx.filter_jit
def at_each(fn, *x):
    return jax.vmap(fn)(*x)


def test_many_turns(rng):
    """No digit is lost but those of the angle itself."""
    angles = np.array([7.0, 50.0, -3e4])
    axis = of_unit_length(rng.normal(size=3))
    found = np.asarray(at_each(co.quaternion_exp, angles[:, None] * axis))
    angles = np.array([np.linalg.norm(a * axis) for a in angles])
    np.testing.assert_allclose(found[:, 0], np.cos(angles / 2), atol=5e-16)


@pytest.mark.parametrize("angle", [0.0, 1e-200, 1e-8, 0.3, 0.39, 0.41, 0.99, 1.01, 3.0, 3.14159])
def test_exp_log(angle, rng):
    """Both sides of each switch between series and closed form; the norm is exact to rounding."""
    phi = angle * of_unit_length(rng.normal(size=3))

    @jit
    def found(phi):
        p = co.quaternion_exp(phi)
        slopes = jax.jacfwd(co.quaternion_log)(p) @ jax.jacrev(co.quaternion_exp)(phi)
        return p, co.quaternion_log(p), co.quaternion_log(-3 * p), slopes

    p, *logs, slope = found(phi)
    assert abs(np.linalg.norm(p) - 1) < 1e-15
    near(p, [np.cos(angle / 2), *(np.sinc(angle / 2 / np.pi) / 2 * phi)], 2.5e-16)
    for log in logs:
        np.testing.assert_allclose(log, phi, rtol=2e-15)
    near(slope, np.eye(3), 1e-13)


def test_forms_agree_in_batches(rng):
    """All conversions, with leading axes as of saved times, broadcast with single vectors, against
    SciPy's rotations."""
    turns = Rotation.from_rotvec(rng.normal(size=(6, 3)))
    p = turns.as_quat(scalar_first=True).reshape(2, 3, 4)
    a, b = rng.normal(size=(3, 3)), rng.normal(size=3)

    R, apply = turns.as_matrix().reshape(2, 3, 3, 3), co.quaternion_rotate
    expected = dict(
        one=turns.apply(b).reshape(2, 3, 3),
        each=np.einsum("ijkl,jl->ijk", R, a),
        several=turns[0].apply(a),
        back=turns.inv().apply(b).reshape(2, 3, 3),
        vector=turns.as_rotvec().reshape(2, 3, 3),
        rpy=turns.as_euler("ZYX").reshape(2, 3, 3)[..., ::-1],
        product=(turns * turns[1]).as_matrix().reshape(2, 3, 3, 3),
        **dict.fromkeys(("matrix", "from_matrix", "from_vector", "from_rpy", "same"), R),
    )

    @jit
    def found(p, a, b):
        matrix, vector, rpy = to_matrix(p), co.quaternion_log(p), co.quaternion_to_rpy(p)
        return dict(
            one=apply(p, b),
            each=apply(p, a),
            several=apply(p[0, 0], a),
            back=apply(co.quaternion_conjugate(p), b),
            product=to_matrix(co.quaternion_product(p, p[0, 1])),
            **dict(matrix=matrix, vector=vector, rpy=rpy),
            from_matrix=to_matrix(co.quaternion_from_matrix(matrix)),
            from_vector=to_matrix(co.quaternion_exp(vector)),
            from_rpy=co.rpy_to_matrix(rpy),
            same=to_matrix(co.rpy_to_quaternion(rpy)),
        )

    for name, x in found(p, a, b).items():
        np.testing.assert_allclose(x, expected[name], rtol=1e-12, atol=2e-14, err_msg=name)
    for bad, words in ((np.zeros((2, 3)), "Incompatible shapes"), (np.zeros(4), "must have shape")):
        with pytest.raises(ValueError, match=words):
            co.quaternion_rotate(p, bad)


def test_from_matrix_near_half_turns():
    """Where the trace formula divides by zero; at exactly pi the sign of p is free."""
    axes = [X, Y, Z, (X + Y) / np.sqrt(2.0), (X - Y + Z) / np.sqrt(3.0)]
    phi = np.array([angle * e for e in axes for angle in (0.0, 2.0, np.pi - 1e-9, np.pi)])

    def there_and_back(phi):
        p = co.quaternion_exp(phi)
        return p, co.quaternion_from_matrix(co.quaternion_to_matrix(p))

    p, found = map(np.asarray, at_each(there_and_back, phi))
    differences = [np.max(np.abs(found - sign * p), axis=1) for sign in (1, -1)]
    assert np.max(np.minimum(*differences)) < 1e-15


def test_derivatives_at_no_rotation():
    """First-order rotation: p = (1, phi/2), R = I + skew(phi); nothing is NaN at angle 0."""
    half = np.concatenate([np.zeros((1, 3)), np.eye(3) / 2])

    def there_and_back(phi):
        R = co.quaternion_to_matrix(co.quaternion_exp(phi))
        return co.quaternion_log(co.quaternion_from_matrix(R))

    @jit
    def found(zero, one):
        at_zero = co.quaternion_exp, co.rpy_to_quaternion, there_and_back
        at_one = co.quaternion_log, co.quaternion_to_rpy
        slopes = [both_modes(fn, zero) for fn in at_zero], [both_modes(fn, one) for fn in at_one]
        flat = lambda phi: co.rpy_to_matrix(phi).ravel()  # noqa: E731
        return *slopes, both_modes(flat, zero)

    of_vectors, logs, of_matrix = found(np.zeros(3), np.array([1.0, 0, 0, 0]))
    expected = half, half, np.eye(3)
    for x, slope in zip([*of_vectors, *logs], [*expected, 4 * half.T, 4 * half.T], strict=True):
        near(x[1:], [slope] * 2, 1e-15 if slope is expected[2] else 0)
    turns = np.stack([skew(e) for e in np.eye(3)], axis=-1).reshape(9, 3)
    near(of_matrix[1:], [turns] * 2, 0)


def third(curve):
    for _ in range(3):
        curve = lambda s, f=curve: jax.jvp(f, (s,), (jnp.ones_like(s),))[1]  # noqa: E731
    return curve


def test_higher_derivatives():
    """Along an axis exp is (cos(s/2), e sin(s/2)), and log(exp(phi + s d)) is a straight line:
    third derivatives on both sides of the switches."""
    axis, d = np.array([2.0, -1.0, 2.0]) / 3, np.array([0.3, -0.5, 0.8])
    s = np.array([0.0, 0.3, 0.39, 0.41, 0.999, 1.001, 1.5, 2.0])

    def both(s):
        of_exp = third(lambda s: co.quaternion_exp(s * axis))(s)
        line = lambda x: co.quaternion_log(co.quaternion_exp(s * Y + x * d))  # noqa: E731
        return of_exp, third(line)(jnp.zeros(()))

    of_exp, of_log = at_each(both, s)
    near(of_exp, np.column_stack([np.sin(s / 2), -np.cos(s / 2)[:, None] * axis]) / 8)
    near(of_log, np.zeros((8, 3)), 1e-13)


@pytest.mark.parametrize("name", ROTATIONS)
def test_rotations(name, rng):
    """R' = skew(omega_world) R = R skew(omega_body), the definition of angular velocity; and a
    displacement is the exact rotation, exp(skew(dp)) R in world axes, R exp(skew(dp)) in body
    axes."""
    map_, to_matrix, world = ROTATIONS[name]
    q, v = some_coordinates(map_, rng), rng.normal(size=(5, 3))
    dp = v * np.array([1e-6, 0.1, 0.3, 0.5, 1.5])[:, None]

    def found(q, v, dp):
        R, rate = jax.jvp(to_matrix, (q,), (map_.qdot(q, v),))
        return R, rate, to_matrix(map_.retract(q, dp))

    for R, rate, after, v, dp in zip(
        *map(np.asarray, at_each(found, q, v, dp)), v, dp, strict=True
    ):
        turn = Rotation.from_rotvec(dp).as_matrix()
        near(rate, skew(v) @ R if world else R @ skew(v), 1e-13)
        near(after, turn @ R if world else R @ turn)


@pytest.mark.parametrize("name", MAPS)
def test_displacements(name, rng):
    """d(q (+) dp) / d(dp) = N(q) at dp = 0, where nothing moves; q (+) dp (-) q = dp up to half a
    turn, with derivative 1; nothing of float32 is promoted."""
    map_ = MAPS[name]
    q, dp = some_coordinates(map_, rng, 3), rng.normal(size=(3, map_.nv)) / 2
    dp[0] = 0.0

    def displaced(q, dp):
        units = jnp.eye(map_.nv)
        N = jax.vmap(map_.qdot, (None, 0), 1)(q, units)
        rest, push = jax.linearize(lambda dp: map_.retract(q, dp), 0 * dp)
        back = lambda dp: map_.difference(q, map_.retract(q, dp))  # noqa: E731
        there, pull = jax.vjp(back, dp)
        return N, jax.vmap(push, 0, 1)(units), there, jax.vmap(pull)(units)[0], rest

    N, slope, there, back, rest = at_each(displaced, q, dp)
    assert N.shape == (3, map_.nq, map_.nv)
    near(slope, N, 2e-14)
    near(there, dp)
    near(back, np.tile(np.eye(map_.nv), (3, 1, 1)), 1e-13)
    near(rest, q, 1e-15)
    single = (jax.ShapeDtypeStruct((n,), np.float32) for n in (map_.nq, map_.nv))
    shapes = jax.eval_shape(lambda q, v: (map_.retract(q, v), map_.qdot(q, v)), *single)
    assert {x.dtype for x in shapes} == {np.dtype("float32")}


def assert_verdict(map_, q, expected):
    assert_verdicts(jit(map_.result)(q), expected)


def test_quaternion_normalise_and_report():
    map_ = co.QuaternionBody()
    near(jit(map_.normalise)(1.3 * TURN_X), TURN_X, 1e-15)
    assert_verdict(map_, 1.3 * TURN_X, RESULTS.successful)
    for bad in [np.zeros(4), 0.4 * TURN_X, 2.1 * TURN_X, np.full(4, np.nan)]:
        assert_verdict(map_, bad, RESULTS.invalid_coordinates)
    slopes = jit(lambda q: [jacobian(map_.normalise)(q) for jacobian in MODES])(np.zeros(4))
    assert np.all(np.isfinite(slopes))


@pytest.mark.parametrize("map_", [co.RollPitchYawWorld(), co.RollPitchYawBody()])
def test_gimbal_lock(map_):
    """At pitch = +-90 degrees: a report, finite values and derivatives, a right displacement."""
    v, zero = np.array([0.1, 0.2, 0.3]), np.zeros(3)

    @jit
    def found(q, v, zero):
        numbers = [map_.qdot(q, v)]
        for jacobian in MODES:
            numbers += jacobian(map_.qdot, argnums=(0, 1))(q, v)
            numbers.append(jacobian(map_.retract, argnums=1)(q, zero))
        R, after = co.rpy_to_matrix(q), co.rpy_to_matrix(map_.retract(q, v))
        return numbers, R, after

    for sign in (1.0, -1.0):
        q = np.array([0.3, sign * np.pi / 2, -0.4])
        assert_verdict(map_, q, RESULTS.gimbal_lock)
        assert_verdict(map_, q + 1e-5 * Y, RESULTS.successful)
        assert_verdict(type(map_)(tolerance=1e-4), q + 1e-5 * Y, RESULTS.gimbal_lock)
        numbers, R, after = jax.device_get(found(q, v, zero))
        assert all(np.all(np.isfinite(x)) for x in numbers)
        turn = Rotation.from_rotvec(v).as_matrix()
        near(after, turn @ R if isinstance(map_, co.RollPitchYawWorld) else R @ turn)


def test_gimbal_lock_of_the_conversion():
    """The angles of a locked quaternion give back the same rotation, also close to the lock."""
    angles = np.array([[0.3, np.pi / 2 - d, -0.4] for d in (0.0, 1e-17, 1e-12, 1e-8, 1e-4)])
    turns = Rotation.from_euler("ZYX", angles[:, ::-1])
    p = np.array([*turns.as_quat(scalar_first=True), [0.5, 0.5, 0.5, -0.5]])  # without rounding

    def found(p):
        rpy = co.quaternion_to_rpy(p)
        slopes = [jacobian(co.quaternion_to_rpy)(p) for jacobian in MODES]
        return rpy, co.rpy_to_matrix(rpy), slopes

    rpy, R, slopes = jax.device_get(at_each(found, p))
    near(R[:-1], turns.as_matrix())
    near(rpy[-1, 1:], [np.pi / 2, 0.0])
    assert np.all(np.isfinite(slopes))


def test_roll_pitch_yaw_run_on():
    """Three and a half turns of yaw count on, and pitching over the top does not jump back."""
    moved, q = jit(co.RollPitchYawWorld().retract), np.zeros(3)
    for _ in range(14):
        q = moved(q, np.pi / 2 * Z)
    near(q, 7 * np.pi * Z, 1e-13)
    q = np.asarray(moved(np.pi / 3 * Y, np.pi / 3 * Y))
    near(q, 2 * np.pi / 3 * Y)
    near(moved(q, 0.1 * Y), q + 0.1 * Y)


def test_product_is_its_parts():
    """Verdicts are those of the parts; a quaternion among other coordinates is normalised."""
    map_ = co.Product(co.Plain(3), co.QuaternionWorld())
    assert (map_.nq, map_.nv) == (7, 6)
    q = np.array([1.0, 2.0, 3.0, *TURN_Y])
    near(jit(map_.normalise)(q * np.array([1, 1, 1, *[1.5] * 4])), q)
    assert_verdict(map_, q, RESULTS.successful)
    assert_verdict(map_, np.append(q[:3], np.zeros(4)), RESULTS.invalid_coordinates)
    locked = np.array([0.0, 0.0, np.pi / 2, 0.0])
    assert_verdict(co.Product(co.Plain(1), co.RollPitchYawBody()), locked, RESULTS.gimbal_lock)


def test_sizes():
    assert co.Plain().nq is None
    with pytest.raises(ValueError, match="`n` of Plain.*at least 0.*-1"):
        co.Plain(-1)
    with pytest.raises(ValueError, match=r"known sizes.*Plain\(3\)"):
        co.Product(co.Plain(), co.QuaternionBody())
    with pytest.raises(ValueError, match=r"`q`.* must have shape \(7,\).*\(8,\)"):
        co.Product(co.Plain(3), co.QuaternionBody()).normalise(to_jax(np.zeros(8)))
