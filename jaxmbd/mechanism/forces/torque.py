from typing import Any

from ..._inputs import checked
from ..body import Body
from ..pose import Frame
from .base import Wrench
from .load import AbstractLoad, in_world, vector_signal
from .signal import AbstractSignal


class Torque(AbstractLoad):
    """Torque on a body: T = torque_world + R torque_body, with the orientation R of the frame.

    **Fields:** `torque_world`, `torque_body` [N m]: components in world axes and in the axes of the
    frame, or `None`. The axes of the frame are those of the body unless `frame` is given.
    """

    torque_world: AbstractSignal | None
    torque_body: AbstractSignal | None

    @checked
    def __init__(
        self,
        name: str,
        body: Body | str,
        *,
        torque_world: Any = None,
        torque_body: Any = None,
        frame: Frame | None = None,
    ):
        """**Arguments:** the body. One or both of the torques, each a vector, a function of the
        time, or an `AbstractSignal` such as `FromControl`.

        **Raises:** `ValueError` if no torque is given, for wrong shapes, and for entries that the
        control does not have.
        """
        AbstractLoad.__init__(self, name, body, frame=frame)
        if torque_world is None and torque_body is None:
            raise ValueError(f'Torque "{name}" needs `torque_world` or `torque_body`.')
        self.torque_world = vector_signal(self, "torque_world", torque_world)
        self.torque_body = vector_signal(self, "torque_body", torque_body)

    def load(self, pose, twist, t, u):
        del twist
        torque = in_world(self, "torque", self.torque_world, self.torque_body, pose, t, u)
        return Wrench.of_torque(torque)
