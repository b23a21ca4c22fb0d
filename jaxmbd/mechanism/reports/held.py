"""Joint coordinates that stay as they are while other joints are closed."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._concrete import compiled_quickly
from ..joint_coordinates import joint_rates, joint_with_coordinates
from ..joints import AbstractConstraint, AbstractJoint, without_names
from ..mechanism import Mechanism
from ..relative import shortest
from ..stack import Stack, stacks


class Held(AbstractConstraint):
    """Rows x - coordinates, with angles within half a turn, and x' - rates, for the coordinates x
    of a joint. `None` means no such rows."""

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    joint: AbstractJoint
    coordinates: Float[Array, " coordinates"] | None
    rates: Float[Array, " coordinates"] | None

    @property
    def bodies(self):
        return self.names

    @property
    def frames(self):
        return self.joint.frames

    def equations(self, poses, t):
        del t
        if self.coordinates is None:
            return jnp.zeros(0, poses[0].position.dtype)
        return shortest(self.joint.coordinates(*poses) - self.coordinates, self.joint.angles)

    def velocity_equations(self, poses, twists, t):
        del t
        if self.rates is None:
            return jnp.zeros(0, poses[0].position.dtype)
        (a, b), (twist_a, twist_b) = poses, twists
        return self.joint.rates(a, b, twist_a, twist_b) - self.rates


class Holding(eqx.Module):
    """From a mechanism to two with further rows: for its positions and for its velocities. They
    share the arrays of the mechanism, so that what both compute is compiled once."""

    coordinates: tuple[Stack, ...]
    rates: tuple[Stack, ...]

    def __call__(self, mechanism: Mechanism) -> tuple[Mechanism, Mechanism]:
        def beside(kinds):
            every = (*mechanism.joint_stacks, *kinds)
            return eqx.tree_at(lambda mechanism: mechanism.joint_stacks, mechanism, every)

        return beside(self.coordinates), beside(self.rates)


def holding(
    mechanism: Mechanism,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    coordinates: Sequence[str],
    rates: Sequence[str],
) -> Holding:
    """Rows that keep the `coordinates` of some joints and the `rates` of some as at (q, v)."""
    for name in (*coordinates, *rates):
        joint_with_coordinates(mechanism, name)
    return _holding(mechanism, q, v, tuple(coordinates), tuple(rates))


@compiled_quickly
def _holding(mechanism, q, v, coordinates, rates):
    def rows(name, x, w):
        joint = joint_with_coordinates(mechanism, name)
        return Held(name, joint.bodies, without_names(joint), x, w)

    return Holding(
        stacks([rows(name, mechanism.joint_coordinates(q, name), None) for name in coordinates]),
        stacks([rows(name, None, joint_rates(mechanism, q, v, name)) for name in rates]),
    )
