"""Joint coordinates that are to stay as they are while other joints are closed."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..joint_coordinates import joint_rates, joint_with_coordinates
from ..joints import AbstractConstraint, AbstractJoint
from ..joints.joint_coordinate import without_names
from ..mechanism import Mechanism
from ..relative import shortest
from ..stack import stacks


class Held(AbstractConstraint):
    """Rows x - coordinates, angles within half a turn, and x' - rates, for the coordinates x of a
    joint; `None` for no such rows."""

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


def holding(
    mechanism: Mechanism,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    names: Sequence[str],
    *,
    rates: bool,
) -> Mechanism:
    """The mechanism with rows that keep the coordinates of the joints `names`, or their `rates`, as
    they are at (q, v)."""
    rows = []
    for name in names:
        joint = joint_with_coordinates(mechanism, name)
        x = None if rates else mechanism.joint_coordinates(q, name)
        w = joint_rates(mechanism, q, v, name) if rates else None
        rows.append(Held(name, joint.bodies, without_names(joint), x, w))
    kinds = (*mechanism.joint_stacks, *stacks(rows))
    return eqx.tree_at(lambda mechanism: mechanism.joint_stacks, mechanism, kinds)
