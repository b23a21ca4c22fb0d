"""The Delassus operator S of contacts, as a matrix or as a product of factors, dense or sparse.

Solvers need only products S lam, single rows, and solutions x of

    (C + P S) x = r

where C and P are block diagonal, with one block for each contact: a linearised contact law. As a
matrix, S costs the cube of the number of rows. In piles and stacks the contacts have more rows than
there are velocities. Then x follows from a system of the size of the velocities. With S = T + Y Y^T
and Y = J_c in coordinates in which the mass is 1,

    (1 + Y^T W Y) u = Y^T C'^-1 r,    x = C'^-1 (r - P Y u),    C' = C + P T,  W = C'^-1 P.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._compiler import apply, contract, general_inverse, inverse, largest, only_if
from .._types import Force, Velocity
from .rows import AbstractContactJacobian, Impulses

# Regularisation of a singular matrix, as a power of the machine precision.
_PROXIMAL = 7 / 16
_REFINEMENTS = 10
_NULL_POWER = 10

# The stage between those that leave out null parts.
_ITERATES = 1

Blocks = Float[Array, "contacts d d"]


class AbstractDelassus(eqx.Module):
    """S, acting on scaled impulses."""

    @property
    @abc.abstractmethod
    def used(self) -> int | Int[Array, ""]:
        """The number of contacts after which none acts."""

    @abc.abstractmethod
    def times(self, lam: Impulses) -> Impulses:
        """S lam."""

    @abc.abstractmethod
    def magnitude(self, lam: Impulses) -> Impulses:
        """Return the sum of the sizes of all terms of S lam."""

    @abc.abstractmethod
    def blocks(self) -> Blocks:
        """Return the blocks on the diagonal."""

    @abc.abstractmethod
    def scaled(self, factors: Impulses) -> "AbstractDelassus":
        """Return diag(factors) S diag(factors)."""

    @abc.abstractmethod
    def plus(self, blocks: Blocks) -> "AbstractDelassus":
        """Return S with these blocks added on the diagonal."""

    @property
    def has_cheap_rows(self) -> bool:
        """Whether `row` and `moved` cost far less than a product with S."""
        return False

    @abc.abstractmethod
    def sums(self, lam: Impulses) -> Any:
        """Return what `row` needs to know about lam."""

    @abc.abstractmethod
    def moved(self, sums: PyTree, i: Int[Array, ""], change: Float[Array, " d"]) -> Any:
        """Return `sums` after a change of the impulses of contact i."""

    @abc.abstractmethod
    def row(self, i: Int[Array, ""], sums: PyTree, own: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the part of S lam that belongs to contact i, whose `own` impulses are lam_i."""

    @abc.abstractmethod
    def factorise(self, C: Blocks, P: Blocks, memory: PyTree) -> tuple[Any, PyTree]:
        """Factorise C + P S, which must be regular. Takes over the memory that the last call, or
        `memory`, returned, and returns the factors with their memory."""

    @abc.abstractmethod
    def solve(self, factor: PyTree, P: Blocks, r: Impulses) -> Impulses:
        """Solve (C + P S) x = r."""

    @abc.abstractmethod
    def solve_transposed(self, factor: PyTree, P: Blocks, r: Impulses) -> Impulses:
        """Solve (C^T + S P^T) x = r."""

    def memory(self) -> PyTree:
        """Return memory for `factorise`, if it takes over any."""
        return None

    def has_room(self, factor: PyTree) -> Bool[Array, ""]:
        """Return whether there was room for these factors. If not, they are NaN."""
        del factor
        return jnp.array(True)


class DenseDelassus(AbstractDelassus):
    """S as an array."""

    matrix: Float[Array, "contacts d contacts d"]

    def times(self, lam):
        return self._times(self.matrix, lam)

    def magnitude(self, lam):
        return self._times(jnp.abs(self.matrix), jnp.abs(lam))

    def blocks(self):
        eye = jnp.eye(self.matrix.shape[0], dtype=self.matrix.dtype)
        return contract("ciej,ce->cij", self.matrix, eye)

    def scaled(self, factors):
        return DenseDelassus(self.matrix * factors[:, :, None, None] * factors[None, None])

    def plus(self, blocks):
        return DenseDelassus(self.matrix + _on_diagonal(blocks))

    @property
    def used(self):
        return self.matrix.shape[0]

    def sums(self, lam):
        return lam

    def moved(self, sums, i, change):
        return sums.at[i].add(change)

    def row(self, i, sums, own):
        return apply(self.matrix[i].reshape(sums.shape[1], -1), sums.ravel())

    def factorise(self, C, P, memory):
        return general_inverse(self._law(C, P))[0], memory

    def solve(self, factor, P, r):
        return apply(factor, r.ravel()).reshape(r.shape)

    def solve_transposed(self, factor, P, r):
        return apply(factor.T, r.ravel()).reshape(r.shape)

    def _law(self, C: Blocks, P: Blocks) -> Float[Array, "n n"]:
        """C + P S."""
        H = contract("cik,ckej->ciej", P, self.matrix) + _on_diagonal(C)
        n = C.shape[0] * C.shape[1]
        return H.reshape(n, n)

    @staticmethod
    def _times(matrix: Float[Array, "contacts d contacts d"], lam: Impulses) -> Impulses:
        return apply(matrix.reshape(lam.size, lam.size), lam.ravel()).reshape(lam.shape)


class AbstractProductDelassus(AbstractDelassus):
    """T + Y A Y^T, where T is block diagonal, and A = 1 without equality rows.

    **Fields:** `Y`; `own`: the blocks of T."""

    Y: eqx.AbstractVar[AbstractContactJacobian]
    own: eqx.AbstractVar[Blocks]

    @property
    @abc.abstractmethod
    def J(self) -> AbstractContactJacobian:
        """The Jacobian in the coordinates of `moved_by`."""

    @abc.abstractmethod
    def moved_by(self, f: Force) -> Velocity:
        """Return the velocities by impulses f: S = T + J `moved_by` J^T."""

    @abc.abstractmethod
    def reaction(self, lam: Impulses) -> Force:
        """Y^T lam."""

    @abc.abstractmethod
    def rows(self, u: Velocity) -> Impulses:
        """Y u."""

    @abc.abstractmethod
    def inner_solve(self, factor: PyTree, u: Velocity, transposed: bool) -> Velocity:
        """Solve the system of the velocities with the second part of a factor, whose first part is
        C'^-1."""

    def times(self, lam):
        return self.J.rows(self.moved_by(self.J.reaction(lam))) + apply_blocks(self.own, lam)

    def magnitude(self, lam):
        lam, Y = jnp.abs(lam), jax.tree.map(jnp.abs, self.Y)
        return Y.rows(Y.reaction(lam)) + apply_blocks(jnp.abs(self.own), lam)

    def sums(self, lam):
        return self.J.reaction(lam)

    def moved(self, sums, i, change):
        return sums + self.J.one(i).reaction(change[None])

    def row(self, i, sums, own):
        return self.J.one(i).rows(self.moved_by(sums))[0] + self.own[i] @ own

    def solve(self, factor, P, r):
        C_inv, inner = factor
        x = apply_blocks(C_inv, r)
        u = self.inner_solve(inner, self.reaction(x), False)
        return x - apply_blocks(C_inv, apply_blocks(P, self.rows(u)))

    def solve_transposed(self, factor, P, r):
        C_inv, inner = factor
        x = apply_blocks(transposed_blocks(C_inv), r)
        f = self.reaction(apply_blocks(transposed_blocks(P), x))
        u = self.inner_solve(inner, f, True)
        return x - apply_blocks(transposed_blocks(C_inv), self.rows(u))

    def weights(self, C: Blocks, P: Blocks) -> tuple[Blocks, Blocks]:
        """Return C'^-1 and W."""
        small = C.shape[1] <= 3  # the blocks of the laws need no pivoting
        invert = inverse if small else general_inverse
        C_inv = jax.vmap(invert)(C + product_blocks(P, self.own))[0]
        return C_inv, product_blocks(C_inv, P)


class FactoredDelassus(AbstractProductDelassus):
    """T + Y Y^T, with a dense system of the velocities."""

    Y: AbstractContactJacobian
    own: Blocks

    @property
    def used(self):
        return self.own.shape[0]

    @property
    def J(self):
        return self.Y

    def moved_by(self, f):
        return f

    def reaction(self, lam):
        return self.Y.reaction(lam)

    def rows(self, u):
        return self.Y.rows(u)

    def blocks(self):
        return self.Y.squares() + self.own

    def scaled(self, factors):
        own = self.own * factors[:, :, None] * factors[:, None, :]
        return FactoredDelassus(self.Y.scaled(factors), own)

    def plus(self, blocks):
        return FactoredDelassus(self.Y, self.own + blocks)

    def factorise(self, C, P, memory):
        C_inv, W = self.weights(C, P)
        K = self.Y.gram(W)
        return (C_inv, general_inverse(K + jnp.eye(len(K), dtype=C.dtype))[0]), memory

    def inner_solve(self, factor, u, transposed):
        return apply(factor.T if transposed else factor, u)


class _Turn(NamedTuple):
    """The stage, and the turns in it; the solution; what is to be solved; to what the inverse is
    applied next; how large the residual, or the last change of the null part, is, and how large it
    was at the start of the stage."""

    stage: Int[Array, ""]
    turns: Int[Array, ""]
    x: Impulses
    s: Impulses
    y: Impulses
    left: Float[Array, ""]
    size: Float[Array, ""]


class GroupInverse(eqx.Module):
    """The group inverse of H = C + P S, which may be singular. The parts of r and x in the null
    space of H are left out. Proximal iterations compute it,

        x <- x + (H + epsilon)^-1 (r - H x),    from x = 0.
    """

    S: AbstractDelassus
    C: Blocks
    P: Blocks
    epsilon: Float[Array, ""]
    factor: PyTree

    def __init__(self, S: AbstractDelassus, C: Blocks, P: Blocks):
        self.C, self.P = C, P
        self.epsilon = jnp.asarray(jnp.finfo(C.dtype).eps ** _PROXIMAL, C.dtype)
        eye = jnp.eye(C.shape[1], dtype=C.dtype)[None]
        self.S = S
        self.factor, _ = S.factorise(C + self.epsilon * eye, P, S.memory())

    @property
    def exists(self) -> Bool[Array, ""]:
        """Whether there was room for the factors."""
        return self.S.has_room(self.factor)

    def solve(self, r: Impulses) -> Impulses:
        """Return the solution x."""
        return self._iterated(
            lambda x: apply_blocks(self.C, x) + apply_blocks(self.P, self.S.times(x)),
            lambda r: self.S.solve(self.factor, self.P, r),
            r,
        )

    def solve_transposed(self, r: Impulses) -> Impulses:
        """Return the solution x of H^T x = r."""
        C, P = transposed_blocks(self.C), transposed_blocks(self.P)
        return self._iterated(
            lambda x: apply_blocks(C, x) + self.S.times(apply_blocks(P, x)),
            lambda r: self.S.solve_transposed(self.factor, self.P, r),
            r,
        )

    def _iterated(self, law: Callable, solve: Callable, r: Impulses) -> Impulses:
        """Leave out the null part of r, iterate, and leave out the null part of x. Applications of
        epsilon (H + epsilon)^-1 leave only the null part. The turns of one loop, so that `solve` is
        compiled once; each stage ends at rounding."""
        rounding = 4 * jnp.finfo(r.dtype).eps

        def turn(at):
            iterates = at.stage == _ITERATES
            y = solve(at.y)
            x = jnp.where(iterates, at.x + y, at.x)
            y = self.epsilon * y
            x, y = only_if(iterates, lambda xy: (xy[0], at.s - law(xy[0])), (x, y))
            left = largest(jnp.where(iterates, y, y - at.y))
            most = jnp.where(iterates, _REFINEMENTS, _NULL_POWER - 1)
            stops = iterates & ~(left < 0.5 * at.left)
            over = (left <= rounding * at.size) | stops | (at.turns >= most)
            s = jnp.where(over & (at.stage < _ITERATES), at.s - y, at.s)
            x = jnp.where(over & (at.stage > _ITERATES), x - y, x)
            y = jnp.where(over, jnp.where(iterates, x, s), y)
            size = largest(y)
            return _Turn(
                at.stage + over.astype(at.stage.dtype),
                jnp.where(over, 0, at.turns + 1),
                x,
                s,
                y,
                jnp.where(over, size, left),
                jnp.where(over, size, at.size),
            )

        size, none = largest(r), jnp.asarray(0)
        start = _Turn(none, none, jnp.zeros_like(r), r, r, size, size)
        return jax.lax.while_loop(lambda at: at.stage <= _ITERATES + 1, turn, start).x


def _on_diagonal(blocks: Blocks) -> Float[Array, "contacts d contacts d"]:
    eye = jnp.eye(blocks.shape[0], dtype=blocks.dtype)
    return blocks[:, :, None] * eye[:, None, :, None]


def product_blocks(A: Blocks, B: Blocks) -> Blocks:
    return contract("cij,cjk->cik", A, B)


def apply_blocks(A: Blocks, x: Impulses) -> Impulses:
    return contract("cij,cj->ci", A, x)


def transposed_blocks(A: Blocks) -> Blocks:
    return jnp.swapaxes(A, 1, 2)
