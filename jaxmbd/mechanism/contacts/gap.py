from collections.abc import Callable, Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._checks import with_dtype
from ..._contact import ContactLaw
from ..._inputs import checked, not_negative, positive_or_infinite, within
from ..body import Body
from ..element import check_rows, checked_name, names_and_frames, rows_of
from ..pose import Frame, Pose
from .base import AbstractGap, frictionless_law


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
