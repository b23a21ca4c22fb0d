from collections.abc import Sequence
from itertools import accumulate

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._inputs import checked
from .._results import RESULTS, first_failure
from .base import AbstractCoordinates


class Product(AbstractCoordinates):
    """Several kinematic maps in one: q and v are the coordinates and velocities of the parts, one
    after the other.

    A free body with its position (m) and its quaternion, and its velocity (m/s) and angular
    velocity (rad/s), is

        mbd.Product(mbd.Plain(3), mbd.QuaternionWorld())    # nq = 7, nv = 6

    **Arguments:**

    - `parts`: kinematic maps of known size.
    """

    parts: tuple[AbstractCoordinates, ...]

    @checked
    def __init__(self, *parts: AbstractCoordinates):
        for part in parts:
            if part.nq is None or part.nv is None:
                raise ValueError(
                    f"Argument `parts` must have known sizes, but {part} has not: "
                    "give the number of coordinates, as in `Plain(3)`."
                )
        self.parts = parts

    @property
    def nq(self) -> int:
        return sum(self._nqs())

    @property
    def nv(self) -> int:
        return sum(self._nvs())

    def qdot(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        qs, vs = _split(q, self._nqs(), "q"), _split(v, self._nvs(), "v")
        return jnp.concatenate([part.qdot(*x) for part, *x in zip(self.parts, qs, vs, strict=True)])

    def retract(self, q: Float[Array, " nq"], dp: Float[Array, " nv"]) -> Float[Array, " nq"]:
        qs, dps = _split(q, self._nqs(), "q"), _split(dp, self._nvs(), "dp")
        return jnp.concatenate(
            [part.retract(*x) for part, *x in zip(self.parts, qs, dps, strict=True)]
        )

    def difference(self, q0: Float[Array, " nq"], q1: Float[Array, " nq"]) -> Float[Array, " nv"]:
        q0s, q1s = _split(q0, self._nqs(), "q0"), _split(q1, self._nqs(), "q1")
        return jnp.concatenate(
            [part.difference(*x) for part, *x in zip(self.parts, q0s, q1s, strict=True)]
        )

    def normalise(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        qs = _split(q, self._nqs(), "q")
        return jnp.concatenate([part.normalise(x) for part, x in zip(self.parts, qs, strict=True)])

    def result(self, q: Float[Array, " nq"]) -> RESULTS:
        qs = _split(q, self._nqs(), "q")
        return first_failure(*(part.result(x) for part, x in zip(self.parts, qs, strict=True)))

    def _nqs(self) -> list[int]:
        return [part.nq or 0 for part in self.parts]

    def _nvs(self) -> list[int]:
        return [part.nv or 0 for part in self.parts]


def _split(x: Float[Array, " n"], sizes: Sequence[int], name: str) -> list[Array]:
    if x.shape != (sum(sizes),):
        raise ValueError(
            f"Argument `{name}` must have shape ({sum(sizes)},), the sum of the parts' "
            f"sizes {list(sizes)}, but has shape {x.shape}."
        )
    return jnp.split(x, list(accumulate(sizes))[:-1])
