"""Contacts between shapes, and the base of all contacts."""

from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import with_dtype
from ..._compiler import to_jax
from ..._contact import ContactLaw
from ..._inputs import (
    Number,
    Refusal,
    Shape,
    checked,
    not_negative,
    positive,
    positive_or_infinite,
    shown,
    within,
)
from ..body import Body
from ..collisions import ContactPoints, collide, point_count
from ..element import AbstractElement, checked_name
from ..frames import names_and_frames
from ..pose import Frame, Pose
from ..shapes import AbstractShape


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


class Contact(AbstractContact):
    """Contact between a shape on body a and a shape on body b, at a fixed number of points. The
    number depends on the two kinds of shapes: see `collide`.

        mbd.Contact("floor", "ground", ball, mbd.HalfSpace(), mbd.Sphere(0.1), friction=0.5)

    The surface of a shape may run along it, as on a conveyor. Friction then acts against
    the slip

        s = v_b - v_a + u_b - u_a,    u = R (w + omega x r),

    without its part along the normal, where w and omega are the velocity of the surface in the
    frame of the shape, R is the rotation of that frame and r the contact point in it. `torsional`
    friction acts against the spin about the normal with R omega added in the same way; `rolling`
    friction does not see it.

    **Fields:** `name`, `body_a`, `body_b`, `shape_a`, `shape_b`, `frame_a`, `frame_b`: poses of the
    shapes relative to their bodies; `law`;

    - `margin` [m]: the gap at which the shapes touch, as if layers were on them; `None` for 0.
    - `surface_velocity_a`, `surface_velocity_b`: w [m/s] and omega [rad/s], shape `(6,)`, or
      `None` for a surface at rest.
    """

    name: str = eqx.field(static=True)
    body_a: str = eqx.field(static=True)
    body_b: str = eqx.field(static=True)
    shape_a: AbstractShape
    shape_b: AbstractShape
    frame_a: Pose
    frame_b: Pose
    law: ContactLaw
    margin: Float[Array, ""] | None
    surface_velocity_a: Float[Array, "6"] | None
    surface_velocity_b: Float[Array, "6"] | None

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        shape_a: AbstractShape,
        shape_b: AbstractShape,
        *,
        frame_a: Frame | None = None,
        frame_b: Frame | None = None,
        law: ContactLaw | None = None,
        margin: Number | None = None,
        surface_velocity_a: Annotated[Any, Shape([6])] | None = None,
        surface_velocity_b: Annotated[Any, Shape([6])] | None = None,
        friction: Annotated[Any, not_negative] = None,
        kinetic: Annotated[Any, not_negative] = None,
        speed: Annotated[Any, positive] = None,
        restitution: Annotated[Any, within(0, 1)] = None,
        torsional: Annotated[Any, not_negative] = None,
        rolling: Annotated[Any, not_negative] = None,
        stiffness: Annotated[Any, positive_or_infinite] = None,
        damping: Annotated[Any, not_negative] = None,
    ):
        """**Arguments:** the fields, with `None` for the frame of the body itself; bodies, their
        names, or "ground"; and either `law` or the coefficients of a `ContactLaw`, with its
        defaults for `None`.

        **Raises:** `ValueError` for two shapes on one body, for a pair of kinds of shapes that
        `collide` does not support, and for coefficients out of their range.
        """
        self.name = checked_name("Contact", name)
        what = f'Contact "{name}"'
        names, frames = names_and_frames(what, (a, b), (frame_a, frame_b))
        if names[0] == names[1]:
            raise ValueError(f'{what} must connect two bodies, but both are "{names[0]}".')
        self.body_a, self.body_b = names
        count = point_count(shape_a, shape_b)
        given = (friction, kinetic, speed, restitution, torsional, rolling, stiffness, damping)
        named = zip(ContactLaw.__dataclass_fields__, given, strict=True)
        coefficients = {coefficient: value for coefficient, value in named if value is not None}
        if law is not None and coefficients:
            raise ValueError(f"{what} needs either `law` or {sorted(coefficients)}, not both.")
        dtype = jnp.result_type(*(frame.position.dtype for frame in frames))
        self.frame_a, self.frame_b = frames
        self.shape_a, self.shape_b = with_dtype((shape_a, shape_b), dtype)
        law = ContactLaw(**coefficients) if law is None else law
        law.check_sizes(what, count)
        self.law = with_dtype(law, dtype)
        self.margin = None if margin is None else to_jax(margin, dtype)
        self.surface_velocity_a, self.surface_velocity_b = (
            None if x is None else to_jax(x, dtype)
            for x in (surface_velocity_a, surface_velocity_b)
        )

    @property
    def bodies(self):
        return self.body_a, self.body_b

    @property
    def frames(self):
        return self.frame_a, self.frame_b

    @property
    def shapes_of_frames(self) -> tuple[AbstractShape, ...]:
        """The shape at each frame."""
        return self.shape_a, self.shape_b

    @property
    def count(self) -> int:
        """Number of contact points."""
        return point_count(self.shape_a, self.shape_b)

    def points(self, poses: tuple[Pose, ...]) -> ContactPoints:
        """The contact points of the shapes at the world poses of the frames."""
        a, b = poses
        points = collide(self.shape_a, a, self.shape_b, b)
        return points if self.margin is None else points._replace(gap=points.gap - self.margin)

    def surface_slip(
        self, poses: tuple[Pose, ...], position: Float[Array, "points 3"]
    ) -> Float[Array, "points 6"] | None:
        """u_b - u_a at points in the world [m/s], and R_b omega_b - R_a omega_a [rad/s]; `None` if
        both surfaces are at rest."""
        if self.surface_velocity_a is None and self.surface_velocity_b is None:
            return None
        total = jnp.zeros((position.shape[0], 6), position.dtype)
        ends = (self.surface_velocity_a, self.surface_velocity_b)
        for sign, pose, velocity in zip((-1, 1), poses, ends, strict=True):
            if velocity is not None:
                w, omega = pose.direction(velocity[:3]), pose.direction(velocity[3:])
                arms = position - pose.position[None]
                u = w[None] + jnp.cross(jnp.broadcast_to(omega, arms.shape), arms)
                spin = jnp.broadcast_to(omega, u.shape)
                total = total + sign * jnp.concatenate([u, spin], axis=-1)
        return total


def _piece(piece: Any) -> Any:
    parts = piece if isinstance(piece, tuple | list) else ()
    kinds = (Body | str, AbstractShape, Pose)
    if len(parts) not in (2, 3) or not all(map(isinstance, parts, kinds)):
        raise Refusal(f"must be (body, shape) or (body, shape, `mbd.Pose`), but is {shown(piece)}.")
    return piece


# (body, shape) or (body, shape, pose)
Piece = Annotated[Any, _piece]


def body_name(piece: Any) -> str:
    """Name of the body of a piece."""
    return piece[0].name if isinstance(piece[0], Body) else piece[0]
