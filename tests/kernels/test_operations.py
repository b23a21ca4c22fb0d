"""Operation by operation against JAX, many in one program: entries as variables, in memory, and in
loops that lanes share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import both, needs_compiler
from jax import lax

INF, NAN = np.inf, np.nan
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.3, -2.7, 0.5, 1.5, 2.5, -0.5, 1e-9, 3e5, 0.999, INF, -INF, NAN]
INTEGERS = [0, 1, -1, 2, -7, 13, 31, 32, 100, 2**31 - 1, -(2**31)]

# How small arrays must be for their entries to be variables, and lanes.
FORMS = {
    "variables": dict(small=1000),
    "memory": dict(small=1),
    "lanes": dict(small=1, lanes=4),
}
forms = pytest.mark.parametrize(
    "options",
    [
        pytest.param(o, id=name, marks=[] if name == "variables" else pytest.mark.slow)
        for name, o in FORMS.items()
    ],
)


def pairs(values, dtype):
    """All pairs, a few of them in each sample."""
    a, b = np.meshgrid(np.array(values), np.array(values))
    count = a.size // 4 * 4
    return tuple(
        np.append(x.ravel()[:count], x.ravel()[-4:]).astype(dtype).reshape(-1, 4) for x in (a, b)
    )


def assert_equal(fn, *inputs, rtol=0.0, tolerances=None, **options):
    """`fn` returns results by name, which are equal to a relative tolerance, 0 for the same bits;
    `tolerances` are those of some of them."""
    names: list[str] = []

    def listed(*x):
        results = fn(*x)
        names[:] = results
        return list(results.values())

    found, known = both(listed, *inputs, **options)
    for name, a, b in zip(names, found, known, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, name
        close = (tolerances or {}).get(name, rtol)
        np.testing.assert_allclose(a, b, rtol=close, atol=close * 1e-3, err_msg=name)


@needs_compiler
@forms
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_floats(options, dtype):
    # Libraries of C and XLA round differently; XLA's float32 less well.
    close = 4e-6 if dtype == np.float32 else 4e-15
    unary = "sin cos tan asin acos atan sinh cosh tanh exp exp2 log log1p expm1 asinh acosh atanh "
    unary += (
        "sqrt rsqrt cbrt logistic erf erfc erf_inv floor ceil abs neg sign is_finite round square"
    )
    exact = "floor ceil abs neg sign is_finite round add sub mul div max min lt le gt ge eq ne"

    def fn(a, b):
        found = {name: getattr(lax, name)(a) for name in unary.split()}
        found["to even"] = lax.round(a, lax.RoundingMethod.TO_NEAREST_EVEN)
        for name in "add sub mul div max min lt le gt ge eq ne pow atan2 rem nextafter".split():
            found[name] = getattr(lax, name)(a, b)
        for power in (-3, -1, 0, 1, 2, 5):
            found[f"power {power}"] = lax.integer_pow(a, power)
        found["clamp"] = lax.clamp(dtype(-1), a, dtype(0.7))
        found["clamp between"] = lax.clamp(b, a, b[::-1])
        found["select"] = jnp.where(a > b, a, b)
        found["bits"] = lax.bitcast_convert_type(a, jnp.int32 if close > 1e-9 else jnp.int64)
        found["of bool"] = (a > b).astype(dtype)
        found["to bool"] = a.astype(bool)
        for name in ("int32", "int64"):
            found[name] = a.astype(name)
        found["uint32"] = jnp.abs(a).astype(jnp.uint32)
        found["other"] = a.astype(jnp.float32 if close < 1e-9 else jnp.float64)
        return found

    tolerances = dict.fromkeys([*unary.split(), "pow", "atan2", "rem"], close)
    tolerances |= {f"power {k}": close for k in (-3, -1, 0, 1, 2, 5)}
    tolerances |= dict.fromkeys(exact.split(), 0)
    assert_equal(fn, *pairs(FLOATS, dtype), tolerances=tolerances, **options)


@needs_compiler
@forms
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64, np.uint8])
def test_functions_of_integers(options, dtype):
    def fn(a, b):
        names = "add sub mul div rem max min lt le gt ge eq ne bitwise_and bitwise_or bitwise_xor"
        names += " shift_left shift_right_logical shift_right_arithmetic"
        found = {name: getattr(lax, name)(a, b) for name in names.split()}
        found |= {name: getattr(lax, name)(a) for name in ("bitwise_not", "sign")}
        found["clamp"] = lax.clamp(dtype(1), a, dtype(20))
        found["square"], found["cube"] = lax.integer_pow(a, 2), lax.integer_pow(a, 3)
        for name in ("int32", "int64", "uint32", "float32", "float64", "bool", "int8"):
            found[name] = a.astype(name)
        if np.dtype(dtype).kind == "i":
            found["abs"], found["neg"] = abs(a), -a
        return found

    inputs = (x.astype(dtype) for x in pairs(INTEGERS, np.int64))
    assert_equal(fn, *inputs, **options)


@needs_compiler
@forms
def test_functions_of_truths(options):
    def fn(a, b):
        names = "bitwise_and bitwise_or bitwise_xor max min eq ne lt ge"
        found = {name: getattr(lax, name)(a, b) for name in names.split()}
        found["not"], found["select"] = ~a, jnp.where(a, b, ~b)
        found |= {"any": a.any(), "all": b.all(), "which": jnp.argmax(a), "last": jnp.argmin(b)}
        found["count"] = jnp.sum(a, dtype=jnp.int32)
        return found

    assert_equal(fn, *pairs([False, True], bool), **options)


@needs_compiler
@forms
def test_moved_numbers(options):
    def fn(x, k):
        row, table = x[0, 0], jnp.arange(35.0).reshape(5, 7) ** 2
        return {
            "transpose": x.transpose(2, 0, 1),
            "slices": x[:, 1:5:2, ::-1],
            "reshape": x.reshape(6, 10),
            "both": x.transpose(1, 0, 2).reshape(15, 4) + x.reshape(15, 4),
            "broadcast": x[:, :, :1] + row[None, None],
            "repeated": jnp.broadcast_to(row[:, None], (4, 30)) * jnp.sin(row)[:, None],
            "concatenate": jnp.concatenate([x, x[:, 2:], 2 * x[:, :1]], 1),
            "stack": jnp.stack([row, -row], 1),
            "pad": lax.pad(x, 7.0, ((1, 2, 0), (-1, 3, 1), (0, -2, 2))),
            "pad to nothing": lax.pad(row, 7.0, ((-2, -2, 0),)),
            "far": lax.pad(row, 7.0, ((-3, 6, 3),)),
            "iota": lax.broadcasted_iota(jnp.int32, (3, 4), 1) + k[None, None],
            "dynamic": lax.dynamic_slice(x, (k, k - 1, jnp.zeros_like(k)), (2, 2, 4)),
            "clamped": lax.dynamic_slice(x, (k + 9, -k, k), (2, 2, 2)),
            "table": table[k] + table[:, k + 1].sum()[None],
            "updated": lax.dynamic_update_slice(x, -x[:2, :2, :2], (k, k, k)),
            "number": lax.pad(k, np.int32(7), ()) + lax.dynamic_update_slice(k, -k, ()),
            "one row": lax.dynamic_update_index_in_dim(row, 5.0, k, 0),
            "split": jnp.split(x, 2, 2)[1],
            "empty": x[:, :0] * 2,
            "empty, reshaped": x[:, :0].reshape(0, 5),
            "sum of nothing": jnp.sum(x[:, :0], 1),
            "largest of nothing": jnp.max(x[:0], 0, initial=-3.0),
            "nothing": jnp.concatenate([x[:0], x, x[:0]]),
            "same": jnp.full((4, 30), k.astype(x.dtype)) + 1.0,
        }

    x = np.random.default_rng(0).normal(size=(3, 3, 5, 4))
    k = np.array([1, 0, 2], np.int32)
    assert_equal(fn, x, k, tolerances={"repeated": 1e-15, "table": 1e-15}, **options)


@needs_compiler
@forms
def test_gather_and_scatter(options):
    def fn(x, i):
        at = x.at[i]
        pair = jnp.stack([i, i[::-1]], 1)
        both = lax.GatherDimensionNumbers((1,), (0, 1), (0, 1))
        found = {
            "clip": at.get(mode="clip"),
            "fill": at.get(mode="fill"),
            "filled": at.get(mode="fill", fill_value=3.0),
            "columns": x[:, jnp.clip(i, 0, 3)],
            "pairs": lax.gather(x[..., None], pair, both, (1, 1, 1), mode="clip"),
            "blocks": jax.vmap(lambda r, k: lax.dynamic_slice(r, (k,), (2,)))(x[:5], i),
            "entries": jax.vmap(lambda r, k: r.at[k].set(9.0, mode="drop"))(x[:5], i),
            "known": x[np.array([3, 0, 3])],
            "known set": x.at[np.array([3, 0])].set(x[:2]),
            "known sum": x.at[np.array([3, 0, 3])].add(x[:3]),
            "places": x.at[np.array([1, 2]), np.array([0, 3])].get(),
        }
        for name in ("set", "add", "mul", "min", "max"):
            updates = x[:5] if name != "set" else jnp.ones((5, 4))
            found[name] = getattr(at, name)(updates, mode="drop")
            found[f"{name}, clipped"] = getattr(at, name)(updates, mode="clip")
        found["whole numbers"] = jnp.arange(9).at[i].get(mode="fill")
        return found

    x = np.random.default_rng(1).normal(size=(2, 6, 4))
    i = np.array([[0, 5, 5, -7, 6], [2, 2, 9, 1, -1]], np.int32)
    assert_equal(fn, x, i, **options)


@needs_compiler
@forms
def test_sums_and_extremes(options):
    def fn(x, n):
        found, with_nan = {}, jnp.where(x > 1, NAN, x)
        for axes in ((0,), (1, 2), (0, 2), (0, 1, 2)):
            for name in ("sum", "prod", "max", "min"):
                found[f"{name} {axes}"] = getattr(jnp, name)(x, axes)
            found[f"NaN {axes}"] = jnp.max(with_nan, axes)
            found[f"any {axes}"] = jnp.any(x > 2, axes)
            found[f"all {axes}"] = jnp.all(x > -2, axes)
            largest = lambda a, b: jnp.where(b > a, b, a)  # noqa: E731
            found[f"largest {axes}"] = lax.reduce(with_nan, 0.0, largest, axes)
            found[f"of nothing {axes}"] = lax.reduce(x[..., :0], 0.0, largest, axes)
        for axis in range(3):
            found[f"argmax {axis}"] = jnp.argmax(with_nan, axis)
            found[f"argmin {axis}"] = jnp.argmin(x, axis)
            found[f"running {axis}"] = jnp.cumsum(x, axis)
            found[f"running down {axis}"] = lax.cumsum(x, axis, reverse=True)
            found[f"running product {axis}"] = jnp.cumprod(x, axis)
            found[f"running extreme {axis}"] = lax.cummax(x, axis) - lax.cummin(
                x, axis, reverse=True
            )
        found["product"] = jnp.einsum("ijk,ilk->ijl", x, x)
        found["matrix"] = x[0] @ x[1].T
        found["vector"] = x[0, 0] @ x[1, 1]
        found["whole"] = jnp.sum(n, dtype=jnp.int32) + jnp.max(n) * jnp.min(n)
        found["bits"] = lax.reduce_xor(n, (0,))
        found["extremes of nothing"] = jnp.argmax(x[:, :1], 1)
        return found

    rng = np.random.default_rng(2)
    x, n = rng.normal(size=(2, 3, 5, 2)), rng.integers(-99, 99, size=(2, 40)).astype(np.int32)
    rounding = "sum prod running product matrix vector".split()
    names = [
        f"{a} {b}" for a in rounding for b in ("(0,)", "(1, 2)", "(0, 2)", "(0, 1, 2)", 0, 1, 2)
    ]
    names += [f"running {kind} {k}" for kind in ("down", "product") for k in range(3)]
    tolerances = dict.fromkeys([*names, *rounding], 1e-12)
    assert_equal(fn, x, n, tolerances=tolerances, **options)


@needs_compiler
@forms
def test_sorted_numbers(options):
    def fn(x, n):
        with_nan = jnp.where(x > 1, NAN, x)
        keys = lax.sort((n[:5], x[0, :5], x[1, :5]), num_keys=2)
        found = {f"axis {k}": jnp.sort(with_nan, k) for k in (0, 1)}
        found |= {"order": jnp.argsort(n), "known": jnp.argsort(jnp.array([3, 1, 2, 1]))}
        found |= {"nothing": lax.sort(n[:0])}
        return found | {f"by keys {k}": x for k, x in enumerate(keys)}

    rng = np.random.default_rng(3)
    x, n = rng.normal(size=(2, 4, 7)), rng.integers(-3, 3, size=(2, 9)).astype(np.int32)
    assert_equal(fn, x, n, **options)
