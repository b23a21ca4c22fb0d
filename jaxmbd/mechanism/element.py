"""What joints and forces have in common: a name, and a frame on each body that they touch."""

import abc

import equinox as eqx

from .pose import Pose


class AbstractElement(eqx.Module):
    """Something that acts between any number of bodies.

    **Fields:** `name`: by which reports know it.
    """

    name: eqx.AbstractVar[str]

    @property
    @abc.abstractmethod
    def bodies(self) -> tuple[str, ...]:
        """Names of the bodies, one for each frame; "ground" is the world."""

    @property
    @abc.abstractmethod
    def frames(self) -> tuple[Pose, ...]:
        """Poses of the frames relative to their bodies."""
