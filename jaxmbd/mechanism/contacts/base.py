"""What may touch: gaps between bodies."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from ..._contact.law import ContactLaw
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


def check_frictionless(what: str, law: ContactLaw) -> ContactLaw:
    """The law. **Raises:** `ValueError`, which begins with `what`, if it has friction."""
    for name in ("friction", "kinetic", "torsional", "rolling"):
        if getattr(law, name) is not None:
            raise ValueError(f"{what} has no tangents, so no friction, but `{name}` is given.")
    return law
