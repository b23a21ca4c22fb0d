"""The residuals (computed minus measured) as a function of the free numbers, and their Jacobian."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._lanes import forward_jacobian
from .losses import AbstractLoss
from .parameters import Parameters
from .part import Data, PartMotion, PartSimulation


class Residuals(eqx.Module):
    """The residuals r(z). z holds the free numbers of the parameters, then those of the starts.

    The rows are the weighted residuals of all samples, the priors of parameters and starts, and the
    terms of the continuity c = 0 in the method of multipliers.
    """

    simulation: PartSimulation
    loss: AbstractLoss

    @property
    def parameters(self) -> Parameters:
        """The parameters, whose free numbers come first in z."""
        return self.simulation.parameters

    def __call__(self, z: Float[Array, " n"], data: Data) -> Float[Array, " rows"]:
        return self._rows(z, self.motions(z, data), data)

    def motions(self, z: Float[Array, " n"], data: Data) -> PartMotion:
        """The motions of all parts at z."""
        shared, own = self._split(z, data)
        return _for_each(lambda k: self.simulation(shared, own[k], data, k), len(own))

    def jacobian(
        self, z: Float[Array, " n"], data: Data
    ) -> tuple[Float[Array, " rows"], Float[Array, "rows n"], PartMotion]:
        """r, dr/dz and the motions of all parts. The motion of a part depends only on the
        parameters and its own start, and only these tangents are propagated. So S parts cost as
        much as one."""
        shared, own = self._split(z, data)

        def derivatives(k):
            def motion(x):
                found = self.simulation(x[: shared.size], x[shared.size :], data, k)
                return found[:3], found

            return forward_jacobian(motion, jnp.concatenate([shared, own[k]]))

        slopes, found = _for_each(derivatives, len(own))
        slopes = [_by_z(slope, shared.size, data, z.size) for slope in slopes]

        def rows(z, motion):
            return self._rows(z, PartMotion(*motion, *found[3:]), data)

        def column(dz, motion):
            return jax.jvp(rows, (z, list(found[:3])), (dz, motion))[1]

        J = jax.vmap(column, in_axes=-1, out_axes=-1)(jnp.eye(z.size, dtype=z.dtype), slopes)
        return self._rows(z, found, data), J, found

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
        """The free numbers of the parameters, and of the starts, `(parts, 2 dof)`."""
        size = self.parameters.size
        return z[:size], jnp.append(z[size:], 0.0)[data.places]


def continuity(found: PartMotion, data: Data) -> Float[Array, "links state"]:
    """The violation c of continuity: the end of each part minus the start of the next one."""
    return found.last[data.links] - found.first[data.links + 1]


def _by_z(slope: Array, shared: int, data: Data, size: int) -> Array:
    """Expand derivatives by the numbers of each part, `(parts, ..., shared + own)`, to all of z."""
    # The numbers of a fixed start go to a column that is dropped.
    whole = jnp.zeros((*slope.shape[:-1], size + 1), slope.dtype)
    whole = whole.at[..., :shared].set(slope[..., :shared])
    add = lambda whole, slope, places: whole.at[..., places].add(slope)  # noqa: E731
    return jax.vmap(add)(whole, slope[..., shared:], shared + data.places)[..., :size]


def _for_each(fn: Callable[..., Any], count: int) -> Any:
    """fn(k) of all parts. A single part is computed without a batch axis, which is faster."""
    if count == 1:
        return jax.tree.map(lambda x: jnp.asarray(x)[None], fn(jnp.array(0)))
    return jax.vmap(fn)(jnp.arange(count))
