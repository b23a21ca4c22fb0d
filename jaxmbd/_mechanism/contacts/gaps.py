"""Gaps without friction: limits of distances, of joints and of coordinates."""

import abc
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import check_ordered, with_dtype
from ..._compiler import array_namespace, refuted, to_jax
from ..._contact import ContactLaw
from ..._coordinates import components
from ..._inputs import Number, checked, not_negative, positive_or_infinite, within
from ..._types import RealScalarLike
from ..body import Body
from ..element import check_rows, checked_name, replaced, rows_of
from ..frames import names_and_frames
from ..joints import AbstractConstraint, AbstractJoint, AbstractJointReader, name_of_joint
from ..pose import Frame, Pose
from ..relative import near_angle
from ..scalar_coordinates import AbstractScalarCoordinate, AlongCoordinate, OfJoint
from .contact import AbstractContact


class AbstractGap(AbstractContact):
    """Gaps that are functions of the poses of frames, without friction."""

    @abc.abstractmethod
    def gaps(self, poses: tuple[Pose, ...], t: RealScalarLike) -> Float[Array, " gaps"]:
        """The gaps g >= 0 at the world poses of the frames [m, or rad]. A pure function."""


def frictionless_law(restitution: Any, stiffness: Any, damping: Any) -> ContactLaw:
    """The law of a contact without friction. `None` stands for the default of `ContactLaw`."""
    given = {"restitution": restitution, "stiffness": stiffness, "damping": damping}
    return ContactLaw(**{name: x for name, x in given.items() if x is not None})


class Gap(AbstractGap):
    """A gap between any number of bodies, given by a function of yours: fn(poses, t) >= 0. For
    instance, a rope that can only pull:

        def slack(poses, t):
            a, b = poses
            d = b.position - a.position
            return 2.0 - jnp.sqrt(jnp.sum(d * d))

        mbd.Gap("rope", ["left", "right"], slack)

    **Fields:** `name`; `names` of the bodies; `local`: pose of each frame relative to its body;
    `fn`; `law`.
    """

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    local: tuple[Pose, ...]
    fn: Callable[..., Any]
    law: ContactLaw

    @checked
    def __init__(
        self,
        name: str,
        bodies: Sequence[Body | str],
        fn: Callable[..., Any],
        *,
        frames: Sequence[Frame | None] | None = None,
        restitution: Annotated[Any, within(0, 1)] = None,
        stiffness: Annotated[Any, positive_or_infinite] = None,
        damping: Annotated[Any, not_negative] = None,
    ):
        """**Arguments:** as for `Constraint`, with an `fn` that returns a number or a vector of
        gaps; `restitution`, or `stiffness` and `damping`, of a `ContactLaw`.

        **Raises:** `ValueError` as `Constraint` does, and for coefficients out of their range.
        """
        self.name = checked_name("Gap", name)
        what = f'Gap "{name}"'
        self.names, self.local = names_and_frames(what, bodies, frames)
        self.fn = fn
        dtype = jnp.result_type(*(frame.position.dtype for frame in self.local))
        check_rows(f"`fn` of {what}", fn, self.local, jax.ShapeDtypeStruct((), dtype))
        self.law = with_dtype(frictionless_law(restitution, stiffness, damping), dtype)

    @property
    def bodies(self):
        return self.names

    @property
    def frames(self):
        return self.local

    def gaps(self, poses, t):
        return rows_of(self.fn, poses, t)


class JointLimit(AbstractGap, AbstractJointReader):
    """Keeps the coordinates of a joint within its `limits`. Each coordinate x has the gaps
    x - lower and upper - x [m, rad]. An angle starts within half a turn of the middle of its
    limits, and a simulation counts its turns from there.

        hinge = mbd.Revolute("hinge", ..., limits=(-0.5, 0.5))
        mbd.Mechanism([...], [hinge], contacts=[mbd.JointLimit(hinge, restitution=0.3)])

    **Fields:** `name`, by default the `joint_name`; `joint`, or `None` where only its name is
    known; `beyond`: each angle less the middle of its limits is within half a turn of it; `law`.
    """

    name: str = eqx.field(static=True)
    joint_name: str = eqx.field(static=True)
    joint: AbstractJoint | None
    beyond: Float[Array, " angles"]
    law: ContactLaw

    reads_limits: ClassVar[bool] = True

    @checked
    def __init__(
        self,
        joint: AbstractJoint | str,
        *,
        name: str | None = None,
        restitution: Annotated[Any, within(0, 1)] = None,
        stiffness: Annotated[Any, positive_or_infinite] = None,
        damping: Annotated[Any, not_negative] = None,
    ):
        """**Arguments:** `joint`, or its name; `restitution`, or `stiffness` and `damping`, of a
        `ContactLaw`.

        **Raises:** `ValueError` for a joint without limits, for infinite limits, and for
        coefficients out of their range.
        """
        self.joint_name = name_of_joint("JointLimit", joint)
        self.name = checked_name("JointLimit", self.joint_name if name is None else name)
        self.law = frictionless_law(restitution, stiffness, damping)
        self.joint, self.beyond = None, to_jax(np.zeros(0), float)
        if isinstance(joint, AbstractConstraint):
            read = self.reading(f'JointLimit "{self.name}"', joint)
            self.joint, self.beyond, self.law = read.joint, read.beyond, read.law

    def reading(self, what, joint):
        if not isinstance(joint, AbstractJoint) or joint.limits is None:
            kind = type(joint).__name__
            raise ValueError(f"{what} needs a joint with `limits`, but got a {kind} without.")
        if refuted(np.isfinite, joint.limits):
            limits = np.asarray(joint.limits).tolist()
            raise ValueError(f"{what} needs finite limits, but they are {limits}.")
        beyond = self.beyond
        if beyond.shape != (joint.angles,):
            beyond = to_jax(np.zeros(joint.angles), joint.dtype)
        return replaced(self, joint=joint, beyond=beyond, law=with_dtype(self.law, joint.dtype))

    @property
    def bodies(self):
        return self.known.bodies

    @property
    def frames(self):
        return self.known.frames

    @property
    def limits(self):
        """The lower and upper limit of each coordinate of the joint [m, rad]."""
        assert self.known.limits is not None
        return self.known.limits

    def overlap(self, gaps):
        limits = np.asarray(self.limits)
        below, above = np.split(gaps, 2)
        said = []
        for i in np.flatnonzero(np.minimum(below, above) < 0):
            unit = "rad" if i >= len(limits) - self.angle_count else "m"
            lower, upper = limits[i]
            value = f"{lower + below[i]:.4g} {unit}, outside of {lower:.4g} to {upper:.4g} {unit}"
            which = f"coordinate {i} " if len(limits) > 1 else ""
            said.append(f'joint "{self.name}" is at {which}{value}')
        return ", ".join(said)

    def gaps(self, poses, t):
        del t
        a, b = poses
        offset = self._offsets(a, b)
        half = (self.limits[:, 1] - self.limits[:, 0]) / 2
        return jnp.concatenate([half + offset, half - offset])

    def _offsets(self, a, b):
        """The coordinates less the middles of their limits."""
        offset = self.known.coordinates(a, b) - jnp.sum(self.limits, axis=1) / 2
        first = offset.shape[0] - self.angle_count
        return jnp.concatenate([offset[:first], near_angle(offset[first:], self.beyond)])

    @property
    def angle_count(self):
        return self.beyond.shape[0]

    def counted_angles(self, poses):
        x = self._offsets(*poses)
        return tuple(components(x[x.shape[0] - self.angle_count :]))

    @property
    def needs_turns(self):
        # Between such limits an angle stays away from where it would jump, if it strikes them hard.
        xp = array_namespace(self.limits)
        limits = xp.asarray(self.limits)
        limits = limits[limits.shape[0] - self.angle_count :]
        return xp.any(limits[:, 1] - limits[:, 0] > 1.5 * math.pi, axis=0)

    def near(self, angles):
        return replaced(self, beyond=jnp.stack(angles)) if angles else self


class CoordinateLimit(AlongCoordinate, AbstractGap):
    """Keeps a scalar coordinate x within limits, by the gaps x - lower and upper - x.

    `JointLimit` does the same for all coordinates of a joint.

    **Fields:** `name`; `coordinate`; `lower`, `upper` [m or rad], or `None`; `law`.
    """

    lower: Float[Array, ""] | None
    upper: Float[Array, ""] | None
    law: ContactLaw

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        *,
        lower: Number | None = None,
        upper: Number | None = None,
        restitution: Annotated[Number, within(0, 1)] | None = None,
        stiffness: Annotated[Number, positive_or_infinite] | None = None,
        damping: Annotated[Number, not_negative] | None = None,
    ):
        """**Arguments:** the fields; `restitution`, or `stiffness` and `damping`, of a
        `ContactLaw`.

        **Raises:** `ValueError` without any limit, and for coefficients out of their range."""
        AlongCoordinate.__init__(self, name, coordinate)
        if lower is None and upper is None:
            raise ValueError(f'CoordinateLimit "{name}" needs `lower`, `upper`, or both.')
        dtype = coordinate.dtype
        self.lower = None if lower is None else to_jax(lower, dtype)
        self.upper = None if upper is None else to_jax(upper, dtype)
        if lower is not None and upper is not None:
            limits = array_namespace(lower, upper).stack([lower, upper])
            check_ordered(f'Limits of CoordinateLimit "{name}"', limits)
        self.law = with_dtype(frictionless_law(restitution, stiffness, damping), dtype)

    @property
    def needs_turns(self):
        of = self.coordinate
        if self.lower is None or self.upper is None:
            return True
        if not isinstance(of, OfJoint) or of.middle is None:
            return True
        # Between such limits an angle stays away from where it would jump, if it strikes them hard.
        xp = array_namespace(of.middle, self.lower, self.upper)
        middle, low, high = (xp.asarray(x) for x in (of.middle, self.lower, self.upper))
        return xp.maximum(middle - low, high - middle) > 0.75 * math.pi

    def overlap(self, gaps):
        bounds = [(float(x), s) for x, s in ((self.lower, 1), (self.upper, -1)) if x is not None]
        i = int(np.argmin(gaps))
        bound, sign = bounds[i]
        side = "below its lower" if sign > 0 else "above its upper"
        return f'coordinate "{self.name}" is {bound + sign * gaps[i]:.4g}, {side} limit {bound:.4g}'

    def gaps(self, poses, t):
        del t
        x = self.coordinate.value(poses)
        below = [] if self.lower is None else [x - self.lower]
        above = [] if self.upper is None else [self.upper - x]
        return jnp.stack([*below, *above])
