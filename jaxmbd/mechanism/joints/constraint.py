from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._inputs import checked
from ..body import Body
from ..element import check_rows, checked_name, names_and_frames, rows_of
from ..pose import Frame, Pose, Twist
from .base import AbstractConstraint


class Constraint(AbstractConstraint):
    """Equations between any number of bodies, by functions of the user:

        Phi = fn(poses, t) = 0,    Psi = velocity_fn(poses, twists, t) = 0.

    For instance, to keep the origins of two bodies at the same height:

        def level(poses, t):
            a, b = poses
            return a.position[2] - b.position[2]

        mbd.Constraint("level", ["left", "right"], level)

    Functions are written for one sample, and best over components (`mbd.rotations.cross`, sums of
    products, not `@`). Numbers in a function that is an `eqx.Module` are parameters with
    derivatives.
    Functions are compared by identity: several constraints by one function are evaluated together;
    one that is written inside of a loop is compiled each time.

    **Fields:**

    - `name`: by which reports know it.
    - `names`: of the bodies.
    - `local`: pose of each frame relative to its body.
    - `fn`, `velocity_fn`: the functions, `None` if there is none.
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

        - `bodies`: bodies, their names, or "ground"; one may come several times, with different
          frames.
        - `fn`: of the tuple of world poses of the frames and of the time, gives the holonomic rows,
          a number or a vector, zero where they hold; `None` if there are only nonholonomic ones.
        - `velocity_fn`: of the tuples of world poses and twists of the frames and of the time,
          gives the nonholonomic rows.
        - `frames`: pose of each frame relative to its body; `None`, for all or for one, is the
          frame of the body itself.

        **Raises:** `ValueError` for no bodies or only the ground, a number of frames that does not
        fit, or functions that return no rows.
        """
        self.name = checked_name("Constraint", name)
        what = f'Constraint "{name}"'
        self.names, self.local = names_and_frames(what, bodies, frames)
        self.fn, self.velocity_fn = fn, velocity_fn
        if fn is None and velocity_fn is None:
            raise ValueError(f"{what} needs `fn`, `velocity_fn`, or both.")
        dtype = jnp.result_type(*(frame.position.dtype for frame in self.local))
        twists = tuple(Twist(jnp.zeros(3, dtype), jnp.zeros(3, dtype)) for _ in self.local)
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
