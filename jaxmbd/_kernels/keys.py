"""Random numbers. A key of JAX's default generator, Threefry, is one number of 64 bits, so that
keys are moved like numbers. Operations that make or read keys see its two halves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_prng_impl
from jaxtyping import Array, UInt32

from .unsupported import Unsupported


def is_key(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jax.dtypes.prng_key)


def stored_dtype(dtype: Any) -> np.dtype:
    """The type as which numbers of `dtype` are stored."""
    if is_key(dtype):
        if dtype.name != "key<fry>":
            raise Unsupported(f"random numbers of {dtype.name}")
        return np.dtype(np.uint64)
    return np.dtype(dtype)


def stored(x: Any) -> np.ndarray:
    """A known array as it is stored."""
    dtype = getattr(x, "dtype", None)
    if dtype is not None and is_key(dtype):
        halves = np.asarray(jax.random.key_data(x))
        return np.ascontiguousarray(halves).view(stored_dtype(dtype))[..., 0]
    return np.asarray(x)


def _of_each(fn, keys, *others):
    """`fn` of each key, with the halves of a key along the last axis."""
    for _ in range(keys.ndim - 1):
        fn = jax.vmap(fn)
    return fn(keys, *others)


def _seeded(_, seeds):
    fn = threefry_prng_impl.seed
    for _ in range(seeds.ndim):
        fn = jax.vmap(fn)
    return fn(seeds)


def _bits(p, keys):
    def bits(key):
        return threefry_prng_impl.random_bits(key, p["bit_width"], p["shape"])

    return _of_each(bits, keys)


# Operations as programs in which a key is an array of its halves.
MAKERS = {
    "random_seed": _seeded,
    "random_bits": _bits,
    "random_split": lambda p, keys: _of_each(
        lambda key: threefry_prng_impl.split(key, p["shape"]), keys
    ),
    "random_fold_in": lambda p, keys, data: _of_each(threefry_prng_impl.fold_in, keys, data),
}

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)


def threefry(
    a: UInt32[Array, "..."],
    b: UInt32[Array, "..."],
    x: UInt32[Array, "..."],
    y: UInt32[Array, "..."],
) -> tuple[Array, Array]:
    """The block cipher Threefry-2x32 with 20 rounds, of the key (a, b) and the block (x, y) (Salmon
    et al., Parallel random numbers: as easy as 1, 2, 3, 2011)."""
    keys = a, b, a ^ b ^ np.uint32(0x1BD11BDA)
    x, y = x + a, y + b
    for k in range(5):
        for turn in _ROTATIONS[k % 2]:
            x = x + y
            y = x ^ ((y << np.uint32(turn)) | (y >> np.uint32(32 - turn)))
        x = x + keys[(k + 1) % 3]
        y = y + keys[(k + 2) % 3] + np.uint32(k + 1)
    return x, y


def places(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The halves of the numbers 0, 1, 2 ... of the entries of an array."""
    count = np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape)
    return (count >> np.uint64(32)).astype(np.uint32), count.astype(np.uint32)
