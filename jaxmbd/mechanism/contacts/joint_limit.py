import math
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._checks import with_dtype
from ..._concrete import is_concrete
from ..._contact import ContactLaw
from ..._inputs import checked, not_negative, positive_or_infinite, within
from ..element import checked_name
from ..joints import AbstractJoint, without_names
from ..relative import within_half_a_turn
from .base import AbstractGap, frictionless_law


class JointLimit(AbstractGap):
    """Keeps the coordinates of a joint within its `limits`. Each coordinate x has the gaps
    x - lower and upper - x [m, rad]. Angles are wrapped to within half a turn of the middle of
    their limits, so these must be less than a turn apart.

        hinge = mbd.Revolute("hinge", ..., limits=(-0.5, 0.5))
        mbd.Mechanism([...], [hinge], contacts=[mbd.JointLimit(hinge, restitution=0.3)])

    **Fields:** `name`, that of the joint; `names` of its bodies; `joint`; `law`.
    """

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    joint: AbstractJoint
    law: ContactLaw

    @checked
    def __init__(
        self,
        joint: AbstractJoint,
        *,
        name: str | None = None,
        restitution: Annotated[Any, within(0, 1)] = None,
        stiffness: Annotated[Any, positive_or_infinite] = None,
        damping: Annotated[Any, not_negative] = None,
    ):
        """**Arguments:** `restitution`, or `stiffness` and `damping`, of a `ContactLaw`.

        **Raises:** `ValueError` for a joint without limits, for infinite limits, for limits of an
        angle that are a turn or more apart, and for coefficients out of their range.
        """
        self.name = checked_name("JointLimit", joint.name if name is None else name)
        what = f'JointLimit "{self.name}"'
        if not isinstance(joint, AbstractJoint) or joint.limits is None:
            raise ValueError(f"{what} needs a joint with `limits`, but got {joint!r}.")
        if is_concrete(joint.limits):
            limits = np.asarray(joint.limits)
            if not np.all(np.isfinite(limits)):
                raise ValueError(f"{what} needs finite limits, but they are {limits.tolist()}.")
            angles = limits[len(limits) - joint.angles :]
            if np.any(angles[:, 1] - angles[:, 0] >= 2 * math.pi):
                raise ValueError(
                    f"{what} needs limits of angles less than a turn apart, but they are "
                    f"{angles.tolist()}."
                )
        self.names, self.joint = joint.bodies, without_names(joint, joint.limits)
        self.law = with_dtype(frictionless_law(restitution, stiffness, damping), joint.dtype)

    @property
    def bodies(self):
        return self.names

    @property
    def frames(self):
        return self.joint.frames

    def gaps(self, poses, t):
        del t
        a, b = poses
        x = self.joint.coordinates(a, b)
        assert self.joint.limits is not None
        lower, upper = self.joint.limits[:, 0], self.joint.limits[:, 1]
        middle = (lower + upper) / 2
        angle = np.arange(x.shape[0]) >= x.shape[0] - self.joint.angles
        offset = jnp.where(angle, jax.vmap(within_half_a_turn)(x - middle), x - middle)
        half = (upper - lower) / 2
        return jnp.concatenate([half + offset, half - offset])
