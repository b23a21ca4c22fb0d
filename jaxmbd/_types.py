"""Type aliases of arrays, one for each kind of vector, so that signatures read like the
mathematics."""

from collections.abc import Callable
from typing import TypeAlias

from jax.typing import DTypeLike
from jaxtyping import Array, Float, PyTree, Shaped

Scalar: TypeAlias = Float[Array, ""]
Coordinates: TypeAlias = Float[Array, " nq"]
Velocity: TypeAlias = Float[Array, " nv"]
Force: TypeAlias = Float[Array, " nv"]
MassMatrix: TypeAlias = Float[Array, "nv nv"]
Rows: TypeAlias = Float[Array, " nc"]
Jacobian: TypeAlias = Float[Array, "nc nv"]
RealScalarLike: TypeAlias = float | int | Shaped[Array, ""]
Control: TypeAlias = Callable[[RealScalarLike, Coordinates, Velocity], PyTree]
DType: TypeAlias = DTypeLike
