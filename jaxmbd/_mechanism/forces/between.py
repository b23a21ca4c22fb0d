"""Springs, friction and actuators between two bodies: laws along a length, a displacement or an
angle of two frames, which are given as those of joints are."""

from collections.abc import Callable
from typing import Annotated, Unpack

import numpy as np
from jaxtyping import Array, ArrayLike

from ..._compiler import is_known
from ..._inputs import Number, at_least, checked, not_negative, positive
from ..body import Body
from ..frame_coordinates import Angle, Displacement, PathLength, TwistAngle
from ..frames import Ends, Frames, placed
from ..joints import AbstractJoint
from ..scalar_coordinates import OfJoint
from .coordinate import CoordinateActuator, CoordinateSpring
from .signal import SignalLike

_Potential = Callable[[Array], ArrayLike]
_Law = Callable[[Array, Array], ArrayLike]


@checked
def Spring(
    name: str,
    a: Body | str,
    b: Body | str,
    *,
    stiffness: Annotated[Number, not_negative] = 0.0,
    damping: Annotated[Number, not_negative] = 0.0,
    rest_length: Annotated[Number, not_negative] | None = None,
    potential: _Potential | None = None,
    law: _Law | None = None,
    actuator: SignalLike | None = None,
    **ends: Unpack[Ends],
) -> CoordinateSpring:
    """Spring, damper and actuator along the line from the origin of a to that of b, a
    `CoordinateSpring` along a `PathLength`. The tension is

        stiffness x + damping x' + dV/dx(x) + law(x, x') - actuator(t, u),
        x = |r_b - r_a| - rest_length.

    Where both points meet, the line has no direction. Only a linear spring of rest length 0 remains
    there, whose force is 0. Energy: stiffness x^2 / 2 + V(x).

    **Arguments:** `stiffness` [N/m], `damping` [N s/m], `rest_length` [m]; `potential`, `law` and
    `actuator` as in `CoordinateSpring`; `ends` as in `Ends`, usually `points`. A damper or an
    actuator alone needs no `rest_length`.

    **Raises:** `ValueError` for a stiffness, damping or rest length that is negative or not finite,
    and for a missing `rest_length` if the force depends on it.
    """
    if rest_length is None:
        elastic = not is_known(stiffness) or np.any(np.asarray(stiffness))
        measured = {"stiffness": elastic, "potential": potential, "law": law}
        if needs := [f"`{what}`" for what, given in measured.items() if given]:
            raise ValueError(
                f'Argument `rest_length` of Spring "{name}" must be given with '
                f"{' and '.join(needs)}: x is the length beyond it."
            )
    return CoordinateSpring(
        name,
        PathLength(*placed(f'Spring "{name}"', a, b, Frames(**ends), directed=False)),
        stiffness=stiffness,
        damping=damping,
        rest=0.0 if rest_length is None else rest_length,
        potential=potential,
        law=law,
        actuator=actuator,
    )


@checked
def TorsionSpring(
    name: str,
    a: Body | str,
    b: Body | str,
    *,
    stiffness: Annotated[Number, not_negative] = 0.0,
    damping: Annotated[Number, not_negative] = 0.0,
    rest_angle: Number = 0.0,
    potential: _Potential | None = None,
    law: _Law | None = None,
    actuator: SignalLike | None = None,
    **frames: Unpack[Frames],
) -> CoordinateSpring:
    """Spring, damper and actuator about the axes e_a and e_b of its frames, a `CoordinateSpring`
    along a `TwistAngle` phi. The torque T g acts on b, and the opposite on a, with

        T = -stiffness x - damping x' - dV/dx(x) - law(x, x') + actuator(t, u),
        x = phi - rest_angle,    x' = g . (omega_b - omega_a),    g = (e_a + e_b) / (1 + e_a . e_b).

    If a joint keeps the axes parallel, g is the axis of a, and phi is the angle of `Revolute`.
    Otherwise phi is the twist, so the energy, stiffness x^2 / 2 + V(x), is conserved for all
    rotations. Near opposite axes, which have no twist, the torque is unbounded.

    A simulation starts with phi within half a turn of `rest_angle`, and counts the turns from
    there, so springs may be wound further.

    **Arguments:** `stiffness` [N m/rad], `damping` [N m s/rad], `rest_angle` [rad]; `potential`,
    `law` and `actuator` as in `CoordinateSpring`; `frames` as in `Frames`.

    **Raises:** `ValueError` for a stiffness or damping that is negative or not finite.
    """
    ends = placed(f'TorsionSpring "{name}"', a, b, frames, directed=True)
    return CoordinateSpring(
        name,
        TwistAngle(*ends, middle=rest_angle),  # pyright: ignore[reportArgumentType]
        stiffness=stiffness,
        damping=damping,
        rest=rest_angle,
        potential=potential,
        law=law,
        actuator=actuator,
    )


@checked
def SlidingFriction(
    name: str,
    a: Body | str,
    b: Body | str,
    *,
    viscous: Annotated[Number, not_negative] = 0.0,
    dry: Annotated[Number, not_negative] = 0.0,
    speed: Annotated[Number, positive] = 1e-2,
    **frames: Unpack[Frames],
) -> CoordinateSpring:
    """Friction of a slide: a force against the velocity w of the origin of b relative to a along
    the axis of a, viscous w + dry w / sqrt(w^2 + speed^2). It is a `CoordinateSpring` without
    stiffness along a `Displacement`.

    **Arguments:** `viscous`, the damping [N s/m]; `dry` [N] and `speed` [m/s] as in
    `CoordinateSpring`; `frames` as in `Frames`.

    **Raises:** `ValueError` for a negative friction, which would add energy, and for a `speed` that
    is not positive."""
    ends = placed(f'SlidingFriction "{name}"', a, b, frames, directed=True)
    return CoordinateSpring(name, Displacement(*ends), damping=viscous, dry=dry, speed=speed)


@checked
def TurningFriction(
    name: str,
    a: Body | str,
    b: Body | str,
    *,
    viscous: Annotated[Number, not_negative] = 0.0,
    dry: Annotated[Number, not_negative] = 0.0,
    speed: Annotated[Number, positive] = 1e-2,
    **frames: Unpack[Frames],
) -> CoordinateSpring:
    """Friction of a hinge: a torque against the angular velocity w of b relative to a about the
    axis of a, viscous w + dry w / sqrt(w^2 + speed^2). It is a `CoordinateSpring` without stiffness
    along an `Angle`.

    **Arguments:** `viscous`, the damping [N m s/rad]; `dry` [N m] and `speed` [rad/s] as in
    `CoordinateSpring`; `frames` as in `Frames`.

    **Raises:** `ValueError` for a negative friction, which would add energy, and for a `speed` that
    is not positive."""
    ends = placed(f'TurningFriction "{name}"', a, b, frames, directed=True)
    along = Angle(*ends)  # pyright: ignore[reportCallIssue]: it does not see what is inherited
    return CoordinateSpring(name, along, damping=viscous, dry=dry, speed=speed)


@checked
def JointFriction(
    joint: AbstractJoint | str,
    index: Annotated[int, at_least(0)] | None = None,
    *,
    name: str | None = None,
    viscous: Annotated[Number, not_negative] = 0.0,
    dry: Annotated[Number, not_negative] = 0.0,
    speed: Annotated[Number, positive] = 1e-2,
) -> CoordinateSpring:
    """Friction along a coordinate of a joint, as `SlidingFriction` and `TurningFriction` are.

    **Arguments:** `joint`, or its name; `index` of the coordinate, if it has several; `name`, by
    default the name of the joint; the others as in `TurningFriction`.

    **Raises:** `ValueError` for a joint without such a coordinate."""
    along = OfJoint(joint, index)
    name = along.joint_name if name is None else name
    return CoordinateSpring(name, along, damping=viscous, dry=dry, speed=speed)


@checked
def LinearActuator(
    name: str,
    a: Body | str,
    b: Body | str,
    *,
    gear: Number = 1.0,
    rotor_inertia: Annotated[Number, not_negative] | None = None,
    index: Annotated[int, at_least(0)] = 0,
    **frames: Unpack[Frames],
) -> CoordinateActuator:
    """Force `gear` u along the axis of a, a `CoordinateActuator` along a `Displacement`. It acts on
    b at its origin, and the opposite on a at the same point. A positive force pushes b forwards.

    If u is the torque of a motor that drives a spindle, `gear` is 2 pi over its pitch, and a
    `rotor_inertia` acts like a mass of gear^2 rotor_inertia. For a force along the line between two
    points, as of a hydraulic cylinder, see the `actuator` of `Spring`.

    **Arguments:** `gear` [N per unit of u], `rotor_inertia` [kg m^2] and `index` as in
    `CoordinateActuator`; `frames` as in `Frames`."""
    ends = placed(f'LinearActuator "{name}"', a, b, frames, directed=True)
    return CoordinateActuator(
        name, Displacement(*ends), gear=gear, rotor_inertia=rotor_inertia, index=index
    )


@checked
def Motor(
    name: str,
    a: Body | str,
    b: Body | str,
    *,
    gear: Number = 1.0,
    rotor_inertia: Annotated[Number, not_negative] | None = None,
    index: Annotated[int, at_least(0)] = 0,
    **frames: Unpack[Frames],
) -> CoordinateActuator:
    """Torque `gear` u about the axis of a, a `CoordinateActuator` along an `Angle`. It acts on b,
    and the opposite on a. A positive torque turns b forwards.

    If u is the torque of a motor before a gearbox, `gear` is the speed of the motor over that of
    the joint, and a `rotor_inertia` acts at the joint as gear^2 rotor_inertia.

    **Arguments:** `gear` [N m per unit of u], `rotor_inertia` [kg m^2] and `index` as in
    `CoordinateActuator`; `frames` as in `Frames`."""
    ends = placed(f'Motor "{name}"', a, b, frames, directed=True)
    along = Angle(*ends)  # pyright: ignore[reportCallIssue]
    return CoordinateActuator(name, along, gear=gear, rotor_inertia=rotor_inertia, index=index)
