"""Type aliases of arrays, one for each kind of vector, so that signatures read like the
mathematics."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PyTree, Shaped

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from numpy.typing import ArrayLike as Convertible

    EitherArray: TypeAlias = Array | np.ndarray
    FetchedArray: TypeAlias = Array
    RealScalarLike: TypeAlias = float | int | Shaped[Array, ""]
else:  # Matplotlib is an extra, and beartype refuses the recursive type of NumPy.
    Axes = Convertible = Any
    # NumPy's arithmetic turns arrays without axes into scalars.
    EitherArray = Array | np.ndarray | np.number
    # `jax.device_get` of a result leaves NumPy's arrays, which are used like JAX's.
    FetchedArray = Array | np.ndarray
    # NumPy's numbers serve too, but most libraries do not declare them.
    RealScalarLike = float | int | Shaped[Array | np.ndarray, ""] | np.number

SeveralAxes: TypeAlias = Sequence[Axes] | np.ndarray
Scalar: TypeAlias = Float[Array, ""]
Coordinates: TypeAlias = Float[Array, " nq"]
Velocity: TypeAlias = Float[Array, " nv"]
Force: TypeAlias = Float[Array, " nv"]
MassMatrix: TypeAlias = Float[Array, "nv nv"]
Rows: TypeAlias = Float[Array, " nc"]
Jacobian: TypeAlias = Float[Array, "nc nv"]
Control: TypeAlias = Callable[[RealScalarLike, Coordinates, Velocity], PyTree]
DType: TypeAlias = DTypeLike
