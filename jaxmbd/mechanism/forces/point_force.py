from typing import Any

import jax.numpy as jnp

from ..._inputs import checked
from ..body import Body
from ..pose import Frame
from .base import Wrench
from .load import AbstractLoad, in_world, vector_signal
from .signal import AbstractSignal


class PointForce(AbstractLoad):
    """Force at a point of a body: F = force_world + R force_body, with the orientation R of the
    frame.

    **Fields:** `force_world`, `force_body` [N]: components in world axes and in the axes of the
    frame, or `None`. The axes of the frame are those of the body unless `frame` is given.
    """

    force_world: AbstractSignal | None
    force_body: AbstractSignal | None

    @checked
    def __init__(
        self,
        name: str,
        body: Body | str,
        *,
        force_world: Any = None,
        force_body: Any = None,
        point: Any = None,
        frame: Frame | None = None,
    ):
        """**Arguments:** the body and the point as in `AbstractLoad`. One or both of the forces,
        each a vector, a function of the time, or an `AbstractSignal` such as `FromControl`.

        **Raises:** `ValueError` if no force is given, for wrong shapes, and for entries that the
        control does not have.
        """
        AbstractLoad.__init__(self, name, body, point=point, frame=frame)
        if force_world is None and force_body is None:
            raise ValueError(f'PointForce "{name}" needs `force_world` or `force_body`.')
        self.force_world = vector_signal(self, "force_world", force_world)
        self.force_body = vector_signal(self, "force_body", force_body)

    def load(self, pose, twist, t, u):
        del twist
        force = in_world(self, "force", self.force_world, self.force_body, pose, t, u)
        return Wrench(force, jnp.zeros_like(force))
