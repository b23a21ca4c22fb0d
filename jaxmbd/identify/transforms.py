"""Transforms from free numbers z to physical values of parameters, with z = 0 at the guess."""

import abc
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float, PyTree

from .._checks import with_dtype
from .._compiler import array_namespace
from .._coordinates import quaternion_product
from .._extensible import Extensible
from .._inputs import Numbers, checked, finite, positive
from .._mechanism import Inertia
from .._types import Scalar


class AbstractTransform(Extensible):
    """A smooth map from free numbers z to the values that a parameter may take,

        value = transform.value(guess, z),    value(guess, 0) = guess.

    A change of z by 1 is a typical change of the value, so that optimisers see similar sizes.
    Implement `size` and `value`, `bounds` if z is bounded, and `check` if guesses can be invalid.
    """

    @abc.abstractmethod
    def size(self, guess: PyTree) -> int:
        """The number of free numbers."""

    @abc.abstractmethod
    def value(self, guess: PyTree, z: Float[Array, " n"]) -> PyTree:
        """The value at z, with the same structure as the guess."""

    def bounds(self, guess: PyTree) -> tuple[np.ndarray, np.ndarray]:
        """The lower and upper bounds of z, `(n,)` each; default infinite."""
        free = np.full(self.size(guess), np.inf)
        return -free, free

    def interval(
        self, guess: PyTree, z: Float[Array, " n"], half: Float[Array, " entries"]
    ) -> tuple[Float[Array, " entries"], Float[Array, " entries"]]:
        """The ends of a confidence interval of half this width, to first order, of each entry of
        the value at z. Default: value -+ half."""
        entries = self._entries(guess, z)
        return entries - half, entries + half

    def log_volume(self, guess: PyTree, z: Float[Array, " n"]) -> Scalar:
        """The logarithm of the volume of values for a unit volume of z, by which a density of
        values becomes one of z: log sqrt det(D^T D), D the derivative of all entries."""
        D = jax.jacfwd(lambda z: self._entries(guess, z))(z)
        return jnp.linalg.slogdet(D.T @ D)[1] / 2

    def _entries(self, guess, z) -> Float[Array, " entries"]:
        return jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(self.value(guess, z))])

    def check(self, name: str, guess: PyTree) -> None:
        """**Raises:** `ValueError` for a guess outside of the range of the map."""
        for leaf in jax.tree.leaves(guess):
            finite(f"`guess` of `{name}`", leaf, shape=None)


class _Entrywise(AbstractTransform):
    """A transform with one free number for each entry of an array."""

    def size(self, guess):
        return int(np.size(guess))

    def log_volume(self, guess, z):
        _, slope = self._with_slope(guess, z)
        return jnp.sum(jnp.log(jnp.abs(slope)))

    def _with_slope(self, guess, z):
        return jax.jvp(lambda z: self.value(guess, z), (z,), (jnp.ones_like(z),))

    def interval(self, guess, z, half):
        """The interval of z, mapped to values. So it stays within the range of the map."""
        value, slope = self._with_slope(guess, z)
        slope = jnp.ravel(jnp.asarray(slope))
        fixed = slope == 0
        reach = half / jnp.where(fixed, 1.0, jnp.abs(slope))
        ends = (jnp.ravel(self.value(guess, z + sign * reach)) for sign in (-1.0, 1.0))
        low, high = (jnp.where(fixed, jnp.ravel(value), end) for end in ends)
        return low, high


@checked
class Free(_Entrywise):
    """Any value: guess + scale z. `scale`: a typical change, a number or one for each entry;
    default the absolute value of the guess, and 1 for zeros."""

    scale: Annotated[Numbers, positive] | None = None

    def value(self, guess, z):
        guess = jnp.asarray(guess, z.dtype)
        if self.scale is None:
            scale = jnp.where(guess == 0, 1.0, jnp.abs(guess)).astype(z.dtype)
        else:
            scale = jnp.broadcast_to(jnp.asarray(self.scale, z.dtype), guess.shape)
        return guess + scale * z.reshape(guess.shape)


class Positive(_Entrywise):
    """Positive values: guess exp(z). A change of z by 1 is a factor e."""

    def value(self, guess, z):
        guess = jnp.asarray(guess, z.dtype)
        return guess * jnp.exp(z.reshape(guess.shape))

    def check(self, name, guess):
        super().check(name, guess)
        _check_positive(name, guess)


class _Box(_Entrywise):
    """A linear map, clipped to bounds. Searches stay within the bounds."""

    @abc.abstractmethod
    def range(self, guess) -> tuple[Numbers, Numbers, Numbers]:
        """The least value, the largest value, and the change of the value if z changes by 1."""

    def value(self, guess, z):
        guess = jnp.asarray(guess, z.dtype)
        lower, upper, unit = (jnp.asarray(x, z.dtype) for x in self.range(guess))
        value = guess + unit * z.reshape(guess.shape)
        # Not `clip`, which has half a derivative at a bound.
        value = jnp.where(value < lower, lower, value)
        return jnp.where(value > upper, upper, value)

    def bounds(self, guess):
        guess = np.asarray(guess, float)
        lower, upper, unit = (np.asarray(x, float) for x in self.range(guess))
        least, largest = (
            np.broadcast_to(_inside(bound, guess, unit), guess.shape).ravel()
            for bound in (lower, upper)
        )
        return least, largest


def _inside(bound: np.ndarray, guess: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """The z of a bound, so far inside that `guess + unit * z` is not rounded to outside, where it
    would be clipped and have no derivative."""
    z, size = (bound - guess) / unit, np.abs(guess) + np.abs(np.where(np.isinf(bound), 0.0, bound))
    slack = 4 * np.finfo(jnp.result_type(float)).eps * size / unit
    exact = (guess == bound) | ((unit == guess) & (bound == 0))
    return np.where(exact, z, z + np.where(z < 0, slack, -slack))


class NotNegative(_Box):
    """Values that may be zero: guess (1 + z), z >= -1. Suppose that measurements fit a negative
    friction best. Then a search with `Positive()` goes on to ever smaller values, but this one ends
    at zero."""

    def range(self, guess):
        return 0.0, np.inf, guess

    def check(self, name, guess):
        super().check(name, guess)
        _check_positive(name, guess)


@checked
class Bounded(_Box):
    """Values between bounds: guess + (upper - lower) z. A change of z by 1 is the whole range. The
    bounds are numbers, or arrays that broadcast with the guess."""

    lower: Annotated[Numbers, finite]
    upper: Annotated[Numbers, finite]

    def __check_init__(self):
        lower, upper = np.asarray(self.lower, float), np.asarray(self.upper, float)
        if not (np.all(lower < upper) and np.all(np.isfinite(upper - lower))):
            raise ValueError(
                "Bounds must be finite and increase, but `lower` is "
                f"{self.lower} and `upper` {self.upper}."
            )

    def range(self, guess):
        xp = array_namespace(self.lower, self.upper)
        return self.lower, self.upper, xp.asarray(self.upper) - xp.asarray(self.lower)

    def check(self, name, guess):
        super().check(name, guess)
        x = np.asarray(guess)
        if not np.all((x >= np.asarray(self.lower)) & (x <= np.asarray(self.upper))):
            raise ValueError(
                f"The guess of `{name}` must lie between its bounds {self.lower} and "
                f"{self.upper}, but is {guess}: start inside, or widen the bounds."
            )


class UnitVector(AbstractTransform):
    """Directions (unit vectors of three entries) with two free numbers, or orientations (unit
    quaternions) with three. The guess is turned,

        value = cos|z| guess + sin|z| / |z| B z,

    where B are the directions perpendicular to the guess. All directions can be reached. The map is
    singular only at half a turn from the guess."""

    def size(self, guess):
        return np.size(guess) - 1

    def value(self, guess, z):
        guess = jnp.asarray(guess, z.dtype)
        cos, sinc = _turn(jnp.sum(z * z))
        return cos * guess + sinc * (_across(guess) @ z)

    def log_volume(self, guess, z):
        """Each number but one, which is the angle, is stretched by sin|z| / |z|. Beyond half a turn
        directions come again: the density ends there."""
        square = jnp.sum(z * z)
        inside = square < np.pi**2
        _, sinc = _turn(jnp.where(inside, square, 0.0))
        return jnp.where(inside, (z.shape[0] - 1) * jnp.log(sinc), -jnp.inf)

    def check(self, name, guess):
        super().check(name, guess)
        if np.shape(guess) not in ((3,), (4,)) or abs(np.linalg.norm(guess) - 1) > 1e-6:
            raise ValueError(
                f"The guess of `{name}` must be a unit vector of three entries or a unit "
                f"quaternion, but is {guess}."
            )


def _turn(square: Scalar) -> tuple[Array, Array]:
    """cos|z| and sin|z| / |z|, from |z|^2, with derivatives at 0."""
    small = square < 1e-12
    angle = jnp.sqrt(jnp.where(small, 1.0, square))
    cos = jnp.where(small, 1 - square / 2, jnp.cos(angle))
    return cos, jnp.where(small, 1 - square / 6, jnp.sin(angle) / angle)


def _across(p: Float[Array, " n"]) -> Float[Array, "n m"]:
    """An orthonormal basis of the directions perpendicular to a unit vector or quaternion."""
    eye = jnp.eye(p.shape[0], dtype=p.dtype)
    if p.shape[0] == 4:
        return jnp.stack([quaternion_product(p, i) for i in eye[1:]], axis=1)
    # Start from the axis that is most nearly perpendicular to p.
    first = jnp.cross(p, eye[jnp.argmin(jnp.abs(p))])
    first = first / jnp.linalg.norm(first)
    return jnp.stack([first, jnp.cross(p, first)], axis=1)


@checked
class LogCholesky(AbstractTransform):
    """An `Inertia` by its ten log-Cholesky numbers, or only its tensor by the six of them that
    determine it. All values belong to possible bodies with volume. `length`: a typical change of
    the centre of mass [m].

    Reference: Rucker and Wensing (2022), Smooth parameterization of rigid-body inertia, IEEE
    Robotics and Automation Letters 7."""

    length: Annotated[float, positive] = 0.1

    def size(self, guess):
        return 10 if isinstance(guess, Inertia) else 6

    def value(self, guess, z):
        if isinstance(guess, Inertia):
            return self._inertia(guess, z)
        # A body of 1 kg can have the same tensor.
        rest = jnp.zeros(10, z.dtype).at[1:7].set(z)
        return self._inertia(_of_unit_mass(guess, z.dtype), rest).tensor

    def _inertia(self, guess: Inertia, z: Float[Array, "10"]) -> Inertia:
        theta = with_dtype(guess, z.dtype).log_cholesky()
        # Logarithms change by 1. The off-diagonal numbers are lengths, like the diagonal ones.
        width = jnp.max(jnp.exp(theta[1:4]))
        one, length = jnp.ones((), z.dtype), jnp.asarray(self.length, z.dtype)
        scale = jnp.stack([one] * 4 + [width] * 3 + [length] * 3)
        return Inertia.from_log_cholesky(theta + scale * z)

    def check(self, name, guess):
        if not isinstance(guess, Inertia):
            if np.shape(guess) != (3, 3):
                raise ValueError(
                    f"The guess of `{name}` must be an `mbd.Inertia` or its tensor, shape (3, 3), "
                    f"but is {guess!r}."
                )
            guess = _of_unit_mass(guess, float)
        super().check(name, guess)
        guess.log_cholesky()  # raises its own error for a thin body


def _of_unit_mass(tensor: ArrayLike, dtype: DTypeLike) -> Inertia:
    return Inertia(jnp.ones((), dtype), jnp.asarray(tensor, dtype))


def is_entrywise(transform: AbstractTransform) -> bool:
    """Whether the transform has one free number for each entry of an array."""
    return isinstance(transform, _Entrywise)


def _check_positive(name: str, guess: ArrayLike) -> None:
    if not np.all(np.asarray(guess) > 0):
        raise ValueError(
            f"The guess of `{name}` must be positive, but is {guess}: start elsewhere, or use "
            "`Free()` if its sign is not known."
        )
