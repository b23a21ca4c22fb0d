"""The transmission angle of linkages."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._coordinates import cross, dot
from ..._inputs import checked
from ..batching import batched
from ..mechanism import Mechanism


@checked
def transmission_angle(
    mechanism: Mechanism, q: Float[Array, "*batch nq"], pins: Sequence[str]
) -> Float[Array, "*batch"]:
    """The angle between coupler and output of a linkage [rad], in [0, pi]. At pi/2 all the force of
    the coupler turns the output. Near 0 and pi it only loads the bearings: keep the angle between
    40 and 140 degrees.

        angle = mbd.reports.transmission_angle(mechanism, found.q, ["A", "B", "D"])

    **Arguments:**

    - `q`: coordinates, with any leading axes.
    - `pins`: names of three joints: between crank and coupler, between coupler and output, and
      between output and ground.

    **Returns:** the angle at the second pin between the lines to the other two. Differentiable,
    except at 0 and pi.

    **Raises:** `ValueError` for unknown joints and unless there are three.

    Reference: Alt (1932), Der Uebertragungswinkel und seine Bedeutung fuer das Konstruieren
    periodischer Getriebe.
    """
    if len(pins) != 3:
        raise ValueError(f"`pins` must name three joints, but are {list(pins)}.")
    for name in pins:
        mechanism.joint(name)
    return _angle(mechanism, mechanism.checked_q(q), tuple(pins))


@eqx.filter_jit
def _angle(mechanism: Mechanism, q: Array, pins: tuple[str, ...]) -> Any:
    def one(q):
        a, b, d = (mechanism.frames(mechanism.joint(name), q)[0].position for name in pins)
        coupler, output = a - b, d - b
        across = cross(coupler, output)
        square = dot(across, across)
        apart = square > 0
        size = jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)
        return jnp.atan2(size, dot(coupler, output))

    return batched(one, (q, 1))
