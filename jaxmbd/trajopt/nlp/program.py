"""Nonlinear programs that are sums of many similar small parts, with exact sparse derivatives."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ..._inputs import checked, number, unjudged


@checked
class Term(eqx.Module):
    """`count` similar parts of a program, each of which depends on `size` of the variables:

        cost_i, rows_i = fn(x[index[i]], data[i]),    lower <= rows_i <= upper.

    The Jacobian and Hessian are `count` small dense blocks, all computed by one `vmap`. So the cost
    of exact derivatives per part does not depend on the number of parts.

    **Arguments:**

    - `fn`: `(x, data) -> (cost, rows)`, with x of shape `(size,)`, a scalar, and `(rows,)`.
    - `index`: the variables of each part, shape `(count, size)`; no variable twice in a part.
    - `data`: a pytree of arrays with leading axis `count`, or `None`.
    - `lower`, `upper`: the bounds of the rows, shape `(rows,)`, the same in each part.
    """

    fn: Callable[[Any, Any], tuple[Any, Any]]
    index: Int[Array, "count size"] = eqx.field(converter=jnp.asarray)
    data: PyTree = None
    lower: Annotated[Float[Array, "..."], number] = eqx.field(converter=jnp.asarray, default=0.0)
    upper: Annotated[Float[Array, "..."], number] = eqx.field(converter=jnp.asarray, default=0.0)

    @property
    def count(self) -> int:
        return self.index.shape[0]

    def values(
        self, x: Float[Array, " n"]
    ) -> tuple[Float[Array, " count"], Float[Array, "count rows"]]:
        """The costs and rows of all parts."""
        return jax.vmap(self.fn)(x[self.index], self.data)

    def jacobians(self, x: Float[Array, " n"]) -> Float[Array, "count rows size"]:
        """The derivatives d rows / d x of all parts."""
        return jax.vmap(jax.jacfwd(lambda x, data: self.fn(x, data)[1]))(x[self.index], self.data)

    def hessians(
        self, x, factor, lam: Float[Array, "count rows"]
    ) -> Float[Array, "count size size"]:
        """The second derivatives d2 (factor cost + lam . rows) / d x2 of all parts."""

        def lagrangian(x, data, lam):
            cost, rows = self.fn(x, data)
            return factor * cost + lam @ rows

        return jax.vmap(jax.hessian(lagrangian))(x[self.index], self.data, lam)


@checked
class NonlinearProgram(eqx.Module):
    """The nonlinear program

        min  sum of the costs of all terms   over x,
        subject to  lower <= rows of each term <= upper,   lower <= x <= upper.

    Equal bounds give an equality. An infinite bound does not act.

    **Arguments:**

    - `terms`: a tuple of `Term`.
    - `start`: the start of the search, shape `(n,)`.
    - `lower`, `upper`: the bounds of the variables, shape `(n,)`.
    """

    terms: tuple[Term, ...]
    start: Annotated[Float[Array, " n"], unjudged] = eqx.field(converter=jnp.asarray)
    lower: Annotated[Float[Array, " n"], number] = eqx.field(converter=jnp.asarray)
    upper: Annotated[Float[Array, " n"], number] = eqx.field(converter=jnp.asarray)

    def __check_init__(self):
        if not self.start.shape == self.lower.shape == self.upper.shape:
            raise ValueError(
                "`start`, `lower` and `upper` of a program must have one shape, but have "
                f"{self.start.shape}, {self.lower.shape} and {self.upper.shape}."
            )
        crossed = np.flatnonzero(np.asarray(self.lower) > np.asarray(self.upper))
        if crossed.size:
            raise ValueError(
                f"Lower bounds must not exceed upper ones, but do for variables {crossed[:5]}."
            )


@eqx.filter_jit
def _objective(program: NonlinearProgram, x):
    return functools.reduce(jnp.add, (jnp.sum(term.values(x)[0]) for term in program.terms))


@eqx.filter_jit
def _gradient(program: NonlinearProgram, x):
    return jax.grad(lambda x: _objective(program, x))(x)


@eqx.filter_jit
def _rows(program: NonlinearProgram, x):
    return jnp.concatenate([term.values(x)[1].ravel() for term in program.terms])


@eqx.filter_jit
def _jacobian(program: NonlinearProgram, x):
    return jnp.concatenate([term.jacobians(x).ravel() for term in program.terms])


@eqx.filter_jit
def _hessian(program: NonlinearProgram, x, factor, lam):
    values, first = [], 0
    for term in program.terms:
        rows = term.lower.shape[0]
        own = jax.lax.dynamic_slice_in_dim(lam, first, term.count * rows)
        H = term.hessians(x, factor, own.reshape(term.count, rows))
        values.append(H[:, *np.tril_indices(H.shape[1])].ravel())
        first += term.count * rows
    return jnp.concatenate(values)


class Evaluator:
    """A program as NumPy functions, in the form that solvers need. Sparse matrices are given by
    their values, at places that are known beforehand. At repeated places the values are added. Each
    function is compiled once for programs of the same functions and shapes."""

    def __init__(self, program: NonlinearProgram):
        self.program = program
        self.start = np.array(program.start, float)
        self.lower, self.upper = np.array(program.lower, float), np.array(program.upper, float)
        terms = program.terms
        self.row_lower = np.concatenate([np.tile(np.asarray(x.lower), x.count) for x in terms])
        self.row_upper = np.concatenate([np.tile(np.asarray(x.upper), x.count) for x in terms])

    def objective(self, x) -> float:
        return float(_objective(self.program, x))

    def gradient(self, x) -> np.ndarray:
        return np.asarray(_gradient(self.program, x))

    def rows(self, x) -> np.ndarray:
        return np.asarray(_rows(self.program, x))

    def jacobian(self, x) -> np.ndarray:
        return np.asarray(_jacobian(self.program, x))

    def hessian(self, x, factor, lam) -> np.ndarray:
        """The Hessian of factor * objective + lam . rows, as values of the lower triangle."""
        return np.asarray(_hessian(self.program, x, np.asarray(factor, float), lam))

    def jacobian_places(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows, columns) of the values of `jacobian`."""
        places, first = [], 0
        for term in self.program.terms:
            index, rows = np.asarray(term.index), term.lower.shape[0]
            row = first + np.arange(term.count * rows).reshape(term.count, rows, 1)
            places.append(np.broadcast_arrays(row, index[:, None, :]))
            first += term.count * rows
        return _joined(places)

    def hessian_places(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows, columns) of the values of `hessian`."""
        places = []
        for term in self.program.terms:
            index = np.asarray(term.index)
            a, b = (index[:, i] for i in np.tril_indices(index.shape[1]))
            places.append((np.maximum(a, b), np.minimum(a, b)))
        return _joined(places)

    def violation(self, x) -> float:
        """The largest violation of a row or a bound."""
        rows = self.rows(x)
        return float(
            max(
                np.max(np.maximum(self.row_lower - rows, rows - self.row_upper), initial=0.0),
                np.max(np.maximum(self.lower - x, x - self.upper), initial=0.0),
            )
        )


def _joined(places) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = zip(*places, strict=True)
    return tuple(np.concatenate([x.ravel() for x in part]) for part in (rows, columns))  # pyright: ignore[reportReturnType]
