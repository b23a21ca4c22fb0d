from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from ..._inputs import checked
from ..body import Body
from ..element import checked_name, names_and_frames
from ..pose import Frame, Pose
from .base import AbstractForceElement, Wrench
from .signal import as_tree


class Force(AbstractForceElement):
    """Forces and torques on any number of bodies, given by a function of yours:

        def wrenches(poses, twists, t, u):
            (satellite, station), (v_satellite, v_station) = poses, twists
            pull = k * (station.position - satellite.position)
            return (pull, jnp.zeros(3)), (-pull, jnp.zeros(3))

        mbd.Force("tether", ["satellite", "station"], wrenches)

    The function takes the tuple of world poses (`Pose`) of the frames, the tuple of twists
    (`Twist`), the time and the control (`None` without one). It returns for each frame a force [N]
    and a torque [N m] about its origin, in world axes. It must be pure. If it is an `eqx.Module`,
    its arrays are parameters of the mechanism, and functions that differ only in their arrays are
    evaluated together.

    Nothing checks that action equals reaction. The base `AbstractForce` guarantees it.

    **Fields:** `name`; `names` of the bodies; `function`; `places`: the frames relative to the
    bodies.
    """

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    function: Callable[..., Any]
    places: tuple[Pose, ...]

    @checked
    def __init__(
        self,
        name: str,
        bodies: Sequence[Body | str],
        function: Callable[..., Any],
        *,
        frames: Sequence[Frame | None] | None = None,
    ):
        """**Arguments:**

        - `name`, `bodies` (or their names; "ground" is the world), `function`.
        - `frames`: pose of each frame relative to its body. `None` instead of one or of all stands
          for the frame of the body itself.

        **Raises:** `ValueError` for no bodies or only the ground, and for a wrong number of frames.
        At evaluation, for a function that does not return a force and a torque for each body.
        """
        self.name = checked_name("Force", name)
        what = f'Force "{name}"'
        self.names, self.places = names_and_frames(what, bodies, frames)
        if not callable(function):
            raise ValueError(f"`function` of {what} must be callable: {function!r}.")
        self.function = as_tree(function)

    @property
    def bodies(self) -> tuple[str, ...]:
        return self.names

    @property
    def frames(self) -> tuple[Pose, ...]:
        return self.places

    def wrenches(self, poses, twists, t, u):
        dtype = poses[0].position.dtype
        returned = self.function(poses, twists, t, u)
        try:
            wrenches = [Wrench(*wrench) for wrench in returned]
        except TypeError as error:
            raise self._error(f"returned {returned}") from error
        wrenches = [Wrench(*(jnp.asarray(x, dtype) for x in wrench)) for wrench in wrenches]
        shapes = [(w.force.shape, w.torque.shape) for w in wrenches]
        if shapes != [((3,), (3,))] * len(self.names):
            raise self._error(f"returned the shapes {shapes}")
        return tuple(wrenches)

    def _error(self, what: str) -> ValueError:
        return ValueError(
            f'The function of Force "{self.name}" must return a force and a torque, shape (3,) '
            f"each, for each of the bodies {list(self.names)}, but {what}."
        )
