"""What may touch: gaps between bodies."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ..._contact import ContactLaw
from ..._types import RealScalarLike
from ..element import AbstractElement
from ..pose import Pose


class AbstractContact(AbstractElement):
    """Something between bodies that can only push: all that a `Mechanism` takes among its
    `contacts`.

    **Fields:** `law`: its coefficients.
    """

    law: eqx.AbstractVar[ContactLaw]


class AbstractGap(AbstractContact):
    """Gaps that are functions of the poses of frames, without friction."""

    @abc.abstractmethod
    def gaps(self, poses: tuple[Pose, ...], t: RealScalarLike) -> Float[Array, " gaps"]:
        """g >= 0 at the world poses of the frames, pure [m, or rad]."""


def frictionless_law(restitution: Any, stiffness: Any, damping: Any) -> ContactLaw:
    """The law of a contact without tangents; `None` for the default of `ContactLaw`."""
    given = {"restitution": restitution, "stiffness": stiffness, "damping": damping}
    return ContactLaw(**{name: x for name, x in given.items() if x is not None})
