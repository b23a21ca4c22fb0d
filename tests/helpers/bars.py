"""Three bars on hinges, as mechanisms."""

from collections.abc import Sequence
from typing import Any

import jaxmbd as mbd

BOX = mbd.Inertia.box(size=[0.3, 0.05, 0.05], mass=1.0)


def three_bars(closed: bool, axes: Sequence[Sequence[float]] | None = None, **options: Any):
    """A chain of three bars in the plane of x and y, or a four-bar. `axes` of the hinges: about z
    by default. `options`: of the `Mechanism`."""
    places = [[0.15, 0.0, 0.0], [0.3, 0.15, 0.0], [0.15, 0.3, 0.0]]
    bodies = [mbd.Body(f"b{i}", BOX, position=place) for i, place in enumerate(places)]
    points = [[0.0, 0.0, 0.0], [0.3, 0.0, 0.0], [0.3, 0.3, 0.0], [0.0, 0.3, 0.0]]
    ends = ["ground", *bodies, "ground"]
    axes = [[0.0, 0.0, 1.0]] * 4 if axes is None else axes
    joints = [
        mbd.Revolute(f"j{i}", ends[i], ends[i + 1], point=points[i], axis=axes[i])
        for i in range(4 if closed else 3)
    ]
    return mbd.Mechanism(bodies, joints, **options)
