"""Optimal feedback about a state."""

from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float

from .._concrete import all_concrete
from .._inputs import checked, not_negative, positive
from .linearise import LinearModel


class StateFeedback(eqx.Module):
    """The control u = u0 - K xi(q, v), for `simulate`, `Stepper` and `trajopt`.

    **Fields:** `gain`: K, `(nu, n)`. `model`: the `LinearModel`, with u0 and the state from which
    xi is measured.
    """

    gain: Float[Array, "nu n"]
    model: LinearModel

    def __call__(self, t, q, v):
        del t
        flat, unravel = ravel_pytree(self.model.u)
        return unravel(flat - self.gain @ self.model.deviation(q, v))


@checked
def lqr(
    model: LinearModel,
    Q: Annotated[ArrayLike, not_negative] = 1.0,
    R: Annotated[ArrayLike, positive] = 1.0,
) -> StateFeedback:
    r"""The linear feedback that minimises

    $$ \int_0^\infty \left(dx^\mathsf{T} Q \, dx + du^\mathsf{T} R \, du\right) dt $$

    for the linear model of a system, $\xi' = A \xi + B \, du$, $dx = Z \xi$. The gain is
    $K = R^{-1} B^\mathsf{T} P$, with the stabilising solution P of the algebraic Riccati equation.

    **Arguments:**

    - `model`: from `linearise`, about an equilibrium.
    - `Q`: the weights of the entries of (dp, dv), a scalar or `(2 nv,)`. `R`: the weights of the
      numbers in u, a scalar or `(nu,)`.

    **Returns:** a `StateFeedback`, which is a control.

    **Raises:** `ValueError` if no feedback stabilises the model, for weights of wrong shape, and
    under `jax.jit`, since SciPy solves the equation.

    Reference: Laub (1979), A Schur method for solving algebraic Riccati equations, IEEE Trans.
    Automatic Control 24, 913-921.
    """
    if not all_concrete((model, Q, R)):
        raise ValueError("`lqr` needs known numbers: call it outside of `jax.jit` and `jax.vmap`.")
    A, B, Z = (np.asarray(x) for x in (model.A, model.B, model.Z))
    weight_x = Z.T @ (_per_entry("Q", Q, Z.shape[0])[:, None] * Z)
    weight_u = np.diag(_per_entry("R", R, B.shape[1]))
    try:
        P = scipy.linalg.solve_continuous_are(A, B, weight_x, weight_u)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "No feedback stabilises the linear model: the inputs do not reach an unstable motion, "
            "or `Q` does not see one."
        ) from error
    return StateFeedback(jnp.asarray(np.linalg.solve(weight_u, B.T @ P), model.A.dtype), model)


def _per_entry(name: str, value: Any, size: int) -> np.ndarray:
    value = np.asarray(value, float)
    if value.shape not in ((), (1,), (size,)):
        raise ValueError(
            f"Argument `{name}` must be a scalar or have {size} entries, but has shape "
            f"{value.shape}."
        )
    return np.broadcast_to(value, size)
