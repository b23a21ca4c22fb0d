"""Systems given by their energies."""

import abc

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ._system import AbstractSystem, has_plain_coordinates, kinematic_matrix
from ._types import Coordinates, Force, MassMatrix, RealScalarLike, Scalar, Velocity


class LagrangianSystem(AbstractSystem):
    """A system given by kinetic energy T(q, v), quadratic in v, and potential energy V(q):

        d/dt dT/dv - N^T dT/dq + b = -N^T dV/dq - dR/dv + Q,

    where R(q, v) is Rayleigh's dissipation function, Q(t, q, v, u) are the other generalised
    forces, and b the terms of quasi-velocities (Boltzmann and Hamel), zero when q' = v. So

        M = d2T/dv2,    f = Q - dR/dv + N^T d(T - V)/dq - (d2T/dv dq) N v - b.

    With q' = N(q) v, any left inverse W of N, p = dT/dv and w = W^T p, the terms b follow from
    Lagrange's equations of T(q, W q') projected with N^T (the Lie bracket of the columns of N):

        b = N^T grad_q (w . N v) - (d/dt N^T) w.

    Subclass it and write `kinetic_energy` and `potential_energy`; `dissipation` and
    `generalised_force` are optional.
    """

    @abc.abstractmethod
    def kinetic_energy(self, q: Coordinates, v: Velocity) -> Scalar:
        """T(q, v) [J]."""

    def potential_energy(self, q: Coordinates) -> Scalar:
        """V(q) [J]. Default: none."""
        return jnp.zeros((), q.dtype)

    def dissipation(self, q: Coordinates, v: Velocity) -> Scalar:
        """R(q, v) [W], the force is -dR/dv: half the power lost when R is quadratic in v.
        Default: none."""
        return jnp.zeros((), q.dtype)

    def generalised_force(self, t: RealScalarLike, q: Coordinates, v: Velocity, u: PyTree) -> Force:
        """Q(t, q, v, u), power-conjugate to v, shape `(nv,)` [N, N m]. Default: none."""
        del t, u
        return jnp.zeros_like(v)

    def mechanical_energy(self, t: RealScalarLike, q: Coordinates, v: Velocity) -> Scalar:
        """T + V [J]."""
        del t
        return self.kinetic_energy(q, v) + self.potential_energy(q)

    def supplied_power(
        self, t: RealScalarLike, q: Coordinates, v: Velocity, u: PyTree, *z: Float[Array, " nz"]
    ) -> Scalar:
        """Q . v - dR/dv . v [W]."""
        lost = jax.grad(self.dissipation, argnums=1)(q, v)
        return (self.generalised_force(t, q, v, u, *z) - lost) @ v

    def mass_matrix(self, q: Coordinates) -> MassMatrix:
        # T is quadratic in v, so its Hessian may be taken anywhere; the size of v comes from
        # `coordinates`, or else is the size of q.
        nv = self.coordinates.nv
        zero = jnp.zeros(q.shape[0] if nv is None else nv, q.dtype)
        return jax.jacfwd(jax.grad(self.kinetic_energy, argnums=1), argnums=1)(q, zero)

    def force(
        self, t: RealScalarLike, q: Coordinates, v: Velocity, u: PyTree, *z: Float[Array, " nz"]
    ) -> Force:
        def momentum(q):
            return jax.grad(self.kinetic_energy, argnums=1)(q, v)

        def lagrangian(q):
            return self.kinetic_energy(q, v) - self.potential_energy(q)

        qdot = self.qdot(q, v)
        p, dp = jax.jvp(momentum, (q,), (qdot,))
        f = self.generalised_force(t, q, v, u, *z) - jax.grad(self.dissipation, argnums=1)(q, v)
        if has_plain_coordinates(self):
            return f + jax.grad(lagrangian)(q) - dp

        def transposed_map(q, w):
            return jax.linear_transpose(lambda x: self.qdot(q, x), v)(w)[0]

        N = kinematic_matrix(self, q, v.shape[0])
        w = N @ jnp.linalg.solve(N.T @ N, p)
        gradient = jax.grad(lambda q: lagrangian(q) - jnp.vdot(w, self.qdot(q, v)))(q)
        _, drift = jax.jvp(lambda q: transposed_map(q, w), (q,), (qdot,))
        return f + transposed_map(q, gradient) - dp + drift
