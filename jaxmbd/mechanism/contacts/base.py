"""The interface of contacts: gaps between bodies."""

import abc
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..._contact import ContactLaw
from ..._types import RealScalarLike
from ..element import AbstractElement
from ..pose import Pose


class AbstractContact(AbstractElement):
    """A unilateral connection between bodies: it can only push. The base of all `contacts` of a
    `Mechanism`.

    **Fields:** `law`: the contact law with its coefficients.
    """

    law: eqx.AbstractVar[ContactLaw]

    def overlap(self, gaps: np.ndarray) -> str:
        """Words for the contact that overlaps, with its gaps."""
        bodies = " and ".join(f'"{body}"' for body in self.bodies)
        return f'{type(self).__name__} "{self.name}" of {bodies} has the gap {np.min(gaps):.4g}'


class AbstractGap(AbstractContact):
    """Gaps that are functions of the poses of frames, without friction."""

    @abc.abstractmethod
    def gaps(self, poses: tuple[Pose, ...], t: RealScalarLike) -> Float[Array, " gaps"]:
        """The gaps g >= 0 at the world poses of the frames [m, or rad]. A pure function."""


def frictionless_law(restitution: Any, stiffness: Any, damping: Any) -> ContactLaw:
    """The law of a contact without friction. `None` stands for the default of `ContactLaw`."""
    given = {"restitution": restitution, "stiffness": stiffness, "damping": damping}
    return ContactLaw(**{name: x for name, x in given.items() if x is not None})
