"""Springs with dampers between two bodies."""

import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._compiler import array_namespace, is_known, proved, to_jax
from ..._coordinates import cross, dot, quaternion_conjugate, quaternion_log, quaternion_product
from ..._inputs import Number, checked, finite, not_negative
from ..body import Body
from ..element import replaced
from ..frames import Ends, Frames
from ..pose import Pose
from ..relative import near_angle, twist, twist_axis
from .base import AbstractForce, Wrench
from .signal import AbstractSignal, as_signal, as_tree, read


class AbstractSpring(AbstractForce):
    """Spring, damper and actuator for one coordinate x, with the force or torque

        stiffness x + damping x' + dV/dx(x) + law(x, x') - actuator(t, u).

    **Fields:** `stiffness`, `damping`, and `potential` V, `law` and `actuator`, or `None`.
    """

    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    potential: Callable[..., Any] | None
    law: Callable[..., Any] | None
    actuator: AbstractSignal | None

    def _set_spring(
        self, stiffness: Any, damping: Any, potential: Any, law: Any, actuator: Any
    ) -> None:
        """Set the fields. Set the frames before: the dtype is theirs."""
        self.stiffness = to_jax(stiffness, self.dtype)
        self.damping = to_jax(damping, self.dtype)
        self.potential = None if potential is None else as_tree(potential)
        self.law = None if law is None else as_tree(law)
        self.actuator = (
            None if actuator is None else as_signal(self._of_actuator, actuator, self.dtype)
        )

    @property
    def _of_actuator(self) -> str:
        return f'`actuator` of {type(self).__name__} "{self.name}"'

    def further_force(self, x: Array, rate: Array, t: Any, u: Any) -> Float[Array, ""]:
        """dV/dx + law - actuator."""
        force = jnp.zeros_like(x)
        if self.potential is not None:
            potential = self.potential
            force = force + jax.grad(lambda x: jnp.asarray(potential(x), x.dtype))(x)
        if self.law is not None:
            force = force + jnp.asarray(self.law(x, rate), x.dtype)
        if self.actuator is not None:
            force = force - read(self._of_actuator, self.actuator, t, u, x.dtype)
        return force

    def stored(self, x: Array) -> Float[Array, ""]:
        """stiffness x^2 / 2 + V(x)."""
        linear = self.stiffness * x * x / 2
        if self.potential is None:
            return linear
        return linear + jnp.asarray(self.potential(x), x.dtype)


class Spring(AbstractSpring):
    """Spring, damper and actuator along the line from the origin of a to that of b. The tension is

        stiffness x + damping x' + dV/dx(x) + law(x, x') - actuator(t, u),
        x = |r_b - r_a| - rest_length.

    Where both points meet, the line has no direction. Only a linear spring of rest length 0 remains
    there, whose force is 0. Energy: stiffness x^2 / 2 + V(x).

    **Fields:** `stiffness` [N/m], `damping` [N s/m], `rest_length` [m]. Optional:

    - `potential`: V, a function of x that returns the energy [J] of a nonlinear spring;
    - `law`: any other tension [N], a function of (x, x'). Its work does not count as stored energy;
    - `actuator`: the force that pushes both ends apart [N], an `AbstractSignal`.
    """

    rest_length: Float[Array, ""]

    directed: ClassVar[bool] = False

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        stiffness: Annotated[Number, not_negative] = 0.0,
        damping: Annotated[Number, not_negative] = 0.0,
        rest_length: Annotated[Number, not_negative] | None = None,
        potential: Callable[..., Any] | None = None,
        law: Callable[..., Any] | None = None,
        actuator: Any = None,
        **ends: Unpack[Ends],
    ):
        """**Arguments:** the fields; `ends` as in `Ends`, usually `points` (the two
        ends). `actuator` may be a number, a function of the time, or an `AbstractSignal` such as
        `FromControl`. A damper or an actuator alone needs no `rest_length`; the field is then 0.

        **Raises:** `ValueError` for a stiffness, damping or rest length that is negative or not
        finite, and for a missing `rest_length` if the force depends on it. A negative stiffness or
        damping is usually a wrong sign. If you mean it, use `potential` or `law`.
        """
        self._connect(name, a, b, Frames(**ends))
        self._set_spring(stiffness, damping, potential, law, actuator)
        if rest_length is None:
            elastic = not proved(np.logical_not, stiffness)
            measured = {"stiffness": elastic, "potential": potential, "law": law}
            if needs := [f"`{what}`" for what, given in measured.items() if given]:
                raise ValueError(
                    f'Argument `rest_length` of Spring "{name}" must be given with '
                    f"{' and '.join(needs)}: x is the length beyond it."
                )
        self.rest_length = to_jax(0.0 if rest_length is None else rest_length, self.dtype)

    def wrench(self, a, b, twist_a, twist_b, t, u):
        d = b.position - a.position
        length, apart = _length(d)
        direction = jnp.where(apart, d / jnp.where(apart, length, 1.0), 0.0)
        rate = dot(direction, twist_b.linear - twist_a.linear)
        more = self.further_force(length - self.rest_length, rate, t, u)
        tension = self.damping * rate - self.stiffness * self.rest_length + more
        # stiffness l times the direction is written as stiffness d, which is smooth at l = 0.
        return Wrench(-tension * direction - self.stiffness * d, jnp.zeros_like(d))

    def energy(self, poses, t):
        a, b = poses
        length, _ = _length(b.position - a.position)
        return self.stored(length - self.rest_length)


def _length(d: Float[Array, "3"]) -> tuple[Array, Array]:
    """|d|, with the derivative 0 at d = 0, and whether d is not 0."""
    l2 = dot(d, d)
    apart = l2 > 0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, l2, 1.0)), 0.0), apart


class TorsionSpring(AbstractSpring):
    """Spring, damper and actuator about the axes e_a and e_b of its frames. The torque T g acts on
    b, and the opposite on a, with

        T = -stiffness x - damping x' - dV/dx(x) - law(x, x') + actuator(t, u),
        x = phi - rest_angle,    x' = g . (omega_b - omega_a),    g = (e_a + e_b) / (1 + e_a . e_b).

    If a joint keeps the axes parallel, g is the axis of a, and phi is the angle of `Revolute`.
    Otherwise phi is the twist: the rotation about e_a that remains of the rotation from a to b
    after the shortest rotation from e_a to e_b. So the energy, stiffness x^2 / 2 + V(x), is
    conserved for all rotations. Opposite axes have no twist. Near them the torque is unbounded.

    A simulation starts with x within half a turn, and counts the turns from there, so springs may
    be wound further. At a pose alone x is within half a turn.

    **Fields:** `stiffness` [N m/rad], `damping` [N m s/rad], `rest_angle` [rad]; `middle`: x is
    within half a turn of it [rad]. Optional:

    - `potential`: V, a function of x that returns the energy [J] of a nonlinear spring;
    - `law`: any other torque against x [N m], a function of (x, x'). Its work does not count as
      stored energy;
    - `actuator`: the torque that turns b forwards and a back [N m], an `AbstractSignal`.
    """

    rest_angle: Float[Array, ""]
    middle: Float[Array, ""]

    directed: ClassVar[bool] = True

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        stiffness: Annotated[Number, not_negative] = 0.0,
        damping: Annotated[Number, not_negative] = 0.0,
        rest_angle: Number = 0.0,
        potential: Callable[..., Any] | None = None,
        law: Callable[..., Any] | None = None,
        actuator: Any = None,
        **frames: Unpack[Frames],
    ):
        """**Arguments:** the fields; `frames` as in `Frames`. `actuator` may be a number,
        a function of the time, or an `AbstractSignal` such as `FromControl`.

        **Raises:** `ValueError` for a stiffness or damping that is negative or not finite, as
        `Spring` does.
        """
        self._connect(name, a, b, frames)
        self._set_spring(stiffness, damping, potential, law, actuator)
        self.rest_angle = to_jax(rest_angle, self.dtype)
        self.middle = jnp.zeros((), self.dtype)

    def wrench(self, a, b, twist_a, twist_b, t, u):
        (x,) = self.counted_angles((a, b))
        axis = twist_axis(a, b)
        rate = dot(axis, twist_b.angular - twist_a.angular)
        against = self.stiffness * x + self.damping * rate + self.further_force(x, rate, t, u)
        return Wrench.of_torque(-against * axis)

    def energy(self, poses, t):
        del t
        (x,) = self.counted_angles(poses)
        return self.stored(x)

    @property
    def angle_count(self):
        return 1

    def counted_angles(self, poses):
        return (near_angle(twist(*poses) - self.rest_angle, self.middle),)

    def near(self, angles):
        (middle,) = angles
        return replaced(self, middle=middle)

    @property
    def needs_turns(self):
        if self.potential is not None or self.law is not None:
            return True
        return array_namespace(self.stiffness).asarray(self.stiffness) != 0


class Bushing(AbstractForce):
    """Elastic connection in all six directions. With the deflection x = (d, phi) of b relative to
    a, its generalised force is

        f = preload - K x - C x',

    where d is the position of the origin of b in frame a, and phi the rotation vector from a to b:
    the unit axis, which has the same components in both frames, times the angle, at most pi. The
    force f[:3] and the torque G^T f[3:] act on b at its origin, in the axes of a, where
    phi' = G omega. For small rotations G = 1. With one stiffness k about all axes the elastic
    torque is -k phi, since G^T phi = phi. The opposite acts on a at the same point.

    The elastic part thus has the energy x.K x / 2 - preload.x for rotations of any size, and the
    damping dissipates x'.C x' >= 0. At half a turn phi jumps, and the torque with it.

    **Fields:**

    - `stiffness`: K, six values along and about the axes of a [N/m, N m/rad], or the full matrix
      `(6, 6)`.
    - `damping`: C likewise [N s/m, N m s/rad].
    - `preload`: f at x = 0, shape `(6,)` [N, N m].
    """

    stiffness: Float[Array, "6"] | Float[Array, "6 6"]
    damping: Float[Array, "6"] | Float[Array, "6 6"]
    preload: Float[Array, "6"]

    directed: ClassVar[bool] = False

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        stiffness: Any,
        damping: Any = (0.0,) * 6,
        preload: Any = (0.0,) * 6,
        **frames: Unpack[Frames],
    ):
        """**Arguments:** the fields; `frames` as in `Frames`. Without `axis` and
        `orientation` the axes of a are those of the world in the present pose.

        **Raises:** `ValueError` for values that are negative or not finite, and for a matrix that
        is not symmetric and positive semidefinite. An unsymmetric stiffness or a negative damping
        would be a source of energy.
        """
        self._connect(name, a, b, frames)
        of = f'of Bushing "{name}"'
        self.stiffness = _matrix(f"`stiffness` {of}", stiffness, self.dtype)
        self.damping = _matrix(f"`damping` {of}", damping, self.dtype)
        self.preload = finite(f"`preload` {of}", preload, self.dtype, (6,))

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del t, u
        x = _deflection(a, b)
        phi = x[3:]
        arm = b.position - a.position
        v = a.local_direction(twist_b.linear - twist_a.at(arm))
        omega = a.local_direction(twist_b.angular - twist_a.angular)
        c = _curvature(dot(phi, phi))

        def turn(y, sign):
            """G y for sign = -1, G^T y for 1."""
            once = cross(phi, y)
            return y + sign / 2 * once + c * cross(phi, once)

        rate = jnp.concatenate([v, turn(omega, -1)])
        f = self.preload - _times(self.stiffness, x) - _times(self.damping, rate)
        return Wrench(a.direction(f[:3]), a.direction(turn(f[3:], 1)))

    def energy(self, poses, t):
        del t
        x = _deflection(*poses)
        return jnp.sum((_times(self.stiffness, x) / 2 - self.preload) * x)


def _deflection(a: Pose, b: Pose) -> Float[Array, "6"]:
    turned = quaternion_product(quaternion_conjugate(a.orientation), b.orientation)
    return jnp.concatenate([a.local_point(b.position), quaternion_log(turned)])


def _curvature(s: Float[Array, ""]) -> Float[Array, ""]:
    """(1 - h cot h) / s with h = sqrt(s) / 2, an analytic function of s up to s = (2 pi)^2."""
    small = s < 1
    near = jnp.where(small, s, 0.0)
    series = jnp.zeros_like(s)
    for coefficient in reversed(_CURVATURE):
        series = series * near + coefficient
    far = jnp.where(small, 1.0, s)
    h = jnp.sqrt(far) / 2
    return jnp.where(small, series, (1 - h * jnp.cos(h) / jnp.sin(h)) / far)


# The coefficients |B_2k| / (2k)! = 2 zeta(2k) / (2 pi)^2k, with the Bernoulli numbers B_2k. There
# are enough of them for second derivatives in float64 up to s = 1.
_CURVATURE = [1 / 12, 1 / 720, 1 / 30240] + [
    2 * sum(n ** (-2.0 * k) for n in range(1, 50)) / (2 * math.pi) ** (2 * k) for k in range(4, 15)
]


def _times(A: Array, x: Float[Array, "6"]) -> Float[Array, "6"]:
    return A * x if A.ndim == 1 else jnp.sum(A * x[None], axis=1)


def _matrix(what: str, value: Any, dtype: Any) -> Array:
    if np.ndim(value) != 2:
        return not_negative(what, value, dtype, (6,))
    A = finite(what, value, dtype, (6, 6))
    if is_known(A):
        known = np.asarray(A, float)
        rounding = 1e2 * np.finfo(np.dtype(dtype)).eps * np.abs(known).max()
        symmetric = np.all(np.abs(known - known.T) <= rounding)
        if not symmetric or np.linalg.eigvalsh(known)[0] < -rounding:
            raise ValueError(
                f"{what} must be a symmetric, positive semidefinite matrix, but is\n{known}."
            )
    return A
