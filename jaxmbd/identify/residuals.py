"""Computed minus measured, as a function of the free numbers; and its Jacobian."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .losses import AbstractLoss
from .parameters import Parameters
from .part import Data, PartMotion, PartSimulation


class Residuals(eqx.Module):
    """r(z): z holds the free numbers of the parameters, then those of the starts.

    The rows: weighted residuals of all samples, what is known of parameters and of starts, and
    those of the continuity c = 0 by the method of multipliers.
    """

    simulation: PartSimulation
    loss: AbstractLoss

    @property
    def parameters(self) -> Parameters:
        """What z stands for first."""
        return self.simulation.parameters

    def __call__(self, z: Float[Array, " n"], data: Data) -> Float[Array, " rows"]:
        return self._rows(z, self.motions(z, data), data)

    def motions(self, z: Float[Array, " n"], data: Data) -> PartMotion:
        """Those of all parts at z."""
        shared, own = self._split(z, data)
        return _for_each(lambda k: self.simulation(shared, own[k], data, k), len(own))

    def jacobian(
        self, z: Float[Array, " n"], data: Data
    ) -> tuple[Float[Array, " rows"], Float[Array, "rows n"]]:
        """r and dr/dz. The motion of a part depends on the parameters and its own start alone, and
        only these tangents are propagated: S parts cost as much as one."""
        shared, own = self._split(z, data)

        def derivatives(k):
            def motion(x):
                found = self.simulation(x[: shared.size], x[shared.size :], data, k)
                return found[:3], found

            return jax.jacfwd(motion, has_aux=True)(jnp.concatenate([shared, own[k]]))

        slopes, found = _for_each(derivatives, len(own))
        slopes = [_by_z(slope, shared.size, data, z.size) for slope in slopes]

        def rows(z, motion):
            return self._rows(z, PartMotion(*motion, *found[3:]), data)

        def column(dz, motion):
            return jax.jvp(rows, (z, list(found[:3])), (dz, motion))[1]

        J = jax.vmap(column, in_axes=-1, out_axes=-1)(jnp.eye(z.size, dtype=z.dtype), slopes)
        return self._rows(z, found, data), J

    def _rows(self, z, found: PartMotion, data: Data) -> Float[Array, " rows"]:
        shared, own = self._split(z, data)
        return jnp.concatenate(
            [
                self.loss(found.residuals.ravel()),
                self.parameters.prior(shared),
                (data.prior * own).ravel(),
                data.multipliers.residuals(continuity(found, data)).ravel(),
            ]
        )

    def _split(self, z, data: Data):
        """Free numbers of the parameters, and of the starts, `(parts, 2 dof)`."""
        size = self.parameters.size
        return z[:size], jnp.append(z[size:], 0.0)[data.places]


def continuity(found: PartMotion, data: Data) -> Float[Array, "links state"]:
    """c: by how much parts end beside the start of the next one."""
    return found.last[data.links] - found.first[data.links + 1]


def _by_z(slope: Array, shared: int, data: Data, size: int) -> Array:
    """Derivatives by what a part depends on, `(parts, ..., shared + own)`, as derivatives by z."""
    # Numbers of a fixed start go to a column that is dropped.
    whole = jnp.zeros((*slope.shape[:-1], size + 1), slope.dtype)
    whole = whole.at[..., :shared].set(slope[..., :shared])
    add = lambda whole, slope, places: whole.at[..., places].add(slope)  # noqa: E731
    return jax.vmap(add)(whole, slope[..., shared:], shared + data.places)[..., :size]


def _for_each(fn: Callable[..., Any], count: int) -> Any:
    """fn(k) of all parts; of a single one without an axis for them, which would only cost."""
    if count == 1:
        return jax.tree.map(lambda x: jnp.asarray(x)[None], fn(jnp.array(0)))
    return jax.vmap(fn)(jnp.arange(count))
