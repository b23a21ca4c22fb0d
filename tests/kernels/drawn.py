"""Programs at random. Hypothesis makes the choices while JAX traces them.

Floats are exact: small multiples of powers of two, as long as sums and products of them need no
rounding, so that no compiler can change a result by the order of a sum or by fused operations.
What is rounded, or read from special numbers that XLA treats as it likes, is only moved afterwards.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -2.5, 3.0, np.inf, -np.inf, np.nan]
# XLA takes subnormal numbers for 0 in arithmetic.
ONLY_MOVED = [1e-300, -5e-324, 0.1, -0.0, np.nan, 1e300]
DTYPES = [np.dtype(x) for x in ("float32", "float64", "int32", "uint32", "int64", "bool")]
SIZES = (0, 1, 1, 2, 3, 3, 4, 5)
MANTISSA = {4: 23, 8: 52}  # by the bytes of a number
ROUNDED = {4: 4e-6, 8: 4e-15}


class Number(NamedTuple):
    """An array of a program. Its floats are multiples of 2^low below 2^high. Without `signed` the
    sign of its zeros is open; if `rounded` it may only be moved, and has an error of about that.
    `given` ones come from outside."""

    x: Any
    low: int = 0
    high: int = 0
    signed: bool = True
    rounded: float | None = None
    given: bool = False

    @property
    def kind(self) -> str:
        return self.x.dtype.kind

    @property
    def exact(self) -> bool:
        bits = MANTISSA.get(self.x.dtype.itemsize, 0)
        return self.rounded is None and self.high - self.low < bits


def numbers(random: Random, dtype: np.dtype, shape: Sequence[int], floats=FLOATS) -> np.ndarray:
    """Special ones among others."""
    rng = np.random.default_rng(random.randrange(2**32))
    if dtype.kind == "f":
        with np.errstate(all="ignore"):
            return rng.choice(np.array(floats).astype(dtype), shape)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    info = np.iinfo(dtype)
    bits = 8 * dtype.itemsize
    special = np.array([info.min, info.max, info.max - 1, 31, bits - 1, bits, bits + 1], dtype)
    small = rng.integers(0 if dtype.kind == "u" else -6, 7, shape).astype(dtype)
    return np.where(rng.random(shape) < 0.3, rng.choice(special, shape), small)


def some_shape(random: Random) -> tuple[int, ...]:
    return tuple(random.choice(SIZES) for _ in range(random.choice((0, 1, 1, 2, 2, 3))))


class Drawing:
    """Operations, some of `operations`, on the numbers that are known so far."""

    def __init__(self, random: Random, known: list[Number], operations: list, depth: int = 0):
        self.random, self.all = random, list(known)
        self.operations, self.depth = operations, depth
        self.names = ["given"] * len(known)
        self.read: set[int] = set()

    def draw(self, count: int) -> None:
        for _ in range(count):
            operation = self.random.choice(self.operations)
            for x in operation(self) or ():
                self.all.append(x)
                self.names.append(f"{operation.__name__} {x.x.dtype}{list(x.x.shape)}")

    def is_kept(self, k: int) -> bool:
        return k not in self.read or self.random.random() < 0.3

    def one(self, test: Callable[[Number], Any] = lambda x: True) -> Number | None:
        """One of the numbers for which `test` holds, rather a late one."""
        found = [k for k, x in enumerate(self.all) if test(x)]
        if not found:
            return None
        k = self.random.choice(found[-12:] if self.random.random() < 0.6 else found)
        self.read.add(k)
        return self.all[k]

    def like(self, x: Number, test: Callable[[Number], Any] = lambda x: True) -> Number:
        """Numbers of the same shape and type for which `test` holds, broadcast if necessary."""

        def fits(y):
            shape = x.x.shape[len(x.x.shape) - y.x.ndim :]
            small = all(n in (1, m) for n, m in zip(y.x.shape, shape, strict=False))
            return y.x.dtype == x.x.dtype and y.x.ndim <= x.x.ndim and small and test(y)

        y = self.one(fits)
        if y is None or self.random.random() < 0.1:
            value = numbers(self.random, np.dtype(x.x.dtype), x.x.shape)
            return Number(jnp.asarray(value), -1, 2, signed=False)
        axes = tuple(range(x.x.ndim - y.x.ndim, x.x.ndim))
        return y._replace(x=lax.broadcast_in_dim(y.x, x.x.shape, axes))

    def index(self) -> Any:
        """A number for a place, often outside."""
        x = self.one(lambda x: x.kind in "iu" and x.x.ndim == 0)
        return jnp.int32(self.random.randrange(4)) if self.random.random() < 0.2 else x.x

    def axis(self, x: Number) -> int:
        return self.random.randrange(x.x.ndim)
