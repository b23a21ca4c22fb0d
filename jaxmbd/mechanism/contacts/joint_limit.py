import math
from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import with_dtype
from ..._concrete import is_concrete, numpy_if_concrete, to_jax
from ..._contact import ContactLaw
from ..._coordinates import components
from ..._inputs import checked, not_negative, positive_or_infinite, within
from ..element import checked_name, replaced
from ..joints import AbstractJoint, without_names
from ..relative import near_angle
from .base import AbstractGap, frictionless_law


class JointLimit(AbstractGap):
    """Keeps the coordinates of a joint within its `limits`. Each coordinate x has the gaps
    x - lower and upper - x [m, rad]. An angle starts within half a turn of the middle of its
    limits, and a simulation counts its turns from there.

        hinge = mbd.Revolute("hinge", ..., limits=(-0.5, 0.5))
        mbd.Mechanism([...], [hinge], contacts=[mbd.JointLimit(hinge, restitution=0.3)])

    **Fields:** `name`, that of the joint; `names` of its bodies; `joint`; `beyond`: each angle less
    the middle of its limits is within half a turn of it; `law`.
    """

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    joint: AbstractJoint
    beyond: Float[Array, " angles"]
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

        **Raises:** `ValueError` for a joint without limits, for infinite limits, and for
        coefficients out of their range.
        """
        self.name = checked_name("JointLimit", joint.name if name is None else name)
        what = f'JointLimit "{self.name}"'
        if not isinstance(joint, AbstractJoint) or joint.limits is None:
            kind = type(joint).__name__
            raise ValueError(f"{what} needs a joint with `limits`, but got a {kind} without.")
        if is_concrete(joint.limits):
            limits = np.asarray(joint.limits)
            if not np.all(np.isfinite(limits)):
                raise ValueError(f"{what} needs finite limits, but they are {limits.tolist()}.")
        self.names, self.joint = joint.bodies, without_names(joint, joint.limits)
        self.beyond = to_jax(np.zeros(joint.angles), joint.dtype)
        self.law = with_dtype(frictionless_law(restitution, stiffness, damping), joint.dtype)

    @property
    def bodies(self):
        return self.names

    @property
    def frames(self):
        return self.joint.frames

    def overlap(self, gaps):
        assert self.joint.limits is not None
        limits = np.asarray(self.joint.limits)
        below, above = np.split(gaps, 2)
        said = []
        for i in np.flatnonzero(np.minimum(below, above) < 0):
            unit = "rad" if i >= len(limits) - self.joint.angles else "m"
            lower, upper = limits[i]
            value = f"{lower + below[i]:.4g} {unit}, outside of {lower:.4g} to {upper:.4g} {unit}"
            which = f"coordinate {i} " if len(limits) > 1 else ""
            said.append(f'joint "{self.name}" is at {which}{value}')
        return ", ".join(said)

    def gaps(self, poses, t):
        del t
        a, b = poses
        offset = self._offsets(a, b)
        assert self.joint.limits is not None
        half = (self.joint.limits[:, 1] - self.joint.limits[:, 0]) / 2
        return jnp.concatenate([half + offset, half - offset])

    def _offsets(self, a, b):
        """The coordinates less the middles of their limits."""
        assert self.joint.limits is not None
        offset = self.joint.coordinates(a, b) - jnp.sum(self.joint.limits, axis=1) / 2
        first = offset.shape[0] - self.joint.angles
        return jnp.concatenate([offset[:first], near_angle(offset[first:], self.beyond)])

    @property
    def angle_count(self):
        return self.joint.angles

    def counted_angles(self, poses):
        x = self._offsets(*poses)
        return tuple(components(x[x.shape[0] - self.joint.angles :]))

    @property
    def needs_turns(self):
        assert self.joint.limits is not None
        # Between such limits an angle stays away from where it would jump, if it strikes them hard.
        xp = numpy_if_concrete(self.joint.limits)
        limits = xp.asarray(self.joint.limits)
        limits = limits[limits.shape[0] - self.joint.angles :]
        return xp.any(limits[:, 1] - limits[:, 0] > 1.5 * math.pi, axis=0)

    def near(self, angles):
        return replaced(self, beyond=jnp.stack(angles)) if angles else self
