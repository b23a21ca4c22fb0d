from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._concrete import to_jax
from ..._inputs import checked
from ..body import Body
from ..element import check_rows, checked_name, names_and_frames, rows_of
from ..pose import Frame, Pose, Twist
from .base import AbstractConstraint


class Constraint(AbstractConstraint):
    """Equations between any number of bodies, given by functions of yours:

        Phi = fn(poses, t) = 0,    Psi = velocity_fn(poses, twists, t) = 0.

    For instance, to keep the origins of two bodies at the same height:

        def level(poses, t):
            a, b = poses
            return a.position[2] - b.position[2]

        mbd.Constraint("level", ["left", "right"], level)

    Write the functions for one sample, and best over components (`mbd.rotations.cross`, sums of
    products, not `@`). If a function is an `eqx.Module`, its arrays are parameters with
    derivatives. Functions are compared by identity: constraints with the same function are
    evaluated together, and a function defined inside a loop is compiled in each pass.

    **Fields:**

    - `name`: its name in reports.
    - `names`: names of the bodies.
    - `local`: pose of each frame relative to its body.
    - `fn`, `velocity_fn`: the functions, or `None`.
    """

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    local: tuple[Pose, ...]
    fn: Callable[..., Any] | None
    velocity_fn: Callable[..., Any] | None

    @checked
    def __init__(
        self,
        name: str,
        bodies: Sequence[Body | str],
        fn: Callable[..., Any] | None,
        *,
        velocity_fn: Callable[..., Any] | None = None,
        frames: Sequence[Frame | None] | None = None,
    ):
        """**Arguments:**

        - `bodies`: bodies, their names, or "ground". A body may occur several times, with different
          frames.
        - `fn`: takes the tuple of world poses of the frames, and the time. It returns the holonomic
          rows, a number or a vector, zero where they hold. `None` if all rows are nonholonomic.
        - `velocity_fn`: takes the tuples of world poses and of twists of the frames, and the time.
          It returns the nonholonomic rows.
        - `frames`: pose of each frame relative to its body. `None` instead of one or of all stands
          for the frame of the body itself.

        **Raises:** `ValueError` for no bodies or only the ground, a wrong number of frames, or
        functions that do not return rows.
        """
        self.name = checked_name("Constraint", name)
        what = f'Constraint "{name}"'
        self.names, self.local = names_and_frames(what, bodies, frames)
        self.fn, self.velocity_fn = fn, velocity_fn
        if fn is None and velocity_fn is None:
            raise ValueError(f"{what} needs `fn`, `velocity_fn`, or both.")
        dtype = jnp.result_type(*(frame.position.dtype for frame in self.local))
        still = to_jax(np.zeros(3), dtype)
        twists = tuple(Twist(still, still) for _ in self.local)
        time = jax.ShapeDtypeStruct((), dtype)
        if fn is not None:
            check_rows(f"`fn` of {what}", fn, self.local, time)
        if velocity_fn is not None:
            check_rows(f"`velocity_fn` of {what}", velocity_fn, self.local, twists, time)

    @property
    def bodies(self):
        return self.names

    @property
    def frames(self):
        return self.local

    def equations(self, poses, t):
        return rows_of(self.fn, poses, t)

    def velocity_equations(self, poses, twists, t):
        return rows_of(self.velocity_fn, poses, twists, t)
