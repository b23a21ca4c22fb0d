"""Campbell diagrams: natural frequencies over the speed of a rotor."""

from collections.abc import Callable
from typing import Annotated, Any

import equinox as eqx
import numpy as np
import scipy.optimize
from jaxtyping import ArrayLike, Complex, Float

from .._inputs import checked, number, positive
from .linearise import LinearModel
from .modes import Modes, modes


class Campbell(eqx.Module):
    """The oscillating modes of a system at several speeds, each followed from speed to speed.

    **Fields:** for k speeds and n modes, NaN where a mode does not oscillate,

    - `speed`: `(k,)`, in the unit that was given, such as rad/s.
    - `s`: eigenvalues with positive imaginary parts [1/s], `(k, n)`.
    """

    speed: Float[np.ndarray, " k"]
    s: Complex[np.ndarray, "k n"]

    @property
    def frequency(self) -> Float[np.ndarray, "k n"]:
        """Frequencies of the damped oscillation [Hz]."""
        return np.imag(self.s) / (2 * np.pi)

    @property
    def damping_ratio(self) -> Float[np.ndarray, "k n"]:
        """-Re s / |s|."""
        return -np.real(self.s) / np.abs(self.s)

    @checked
    def critical_speeds(
        self,
        order: Annotated[float, positive] = 1.0,
        *,
        per_second: Annotated[float, positive] = 1.0,
    ) -> np.ndarray:
        """The speeds at which a mode has the angular frequency order * speed, interpolated linearly
        between the speeds of the diagram. `per_second`: rad/s for a speed of 1."""
        off = np.imag(self.s) - order * per_second * self.speed[:, None]
        before, after = off[:-1], off[1:]
        crosses = (before > 0) != (after > 0)
        crosses &= np.isfinite(before) & np.isfinite(after)
        share = before[crosses] / (before - after)[crosses]
        k = np.nonzero(crosses)[0]
        return np.sort(self.speed[k] + share * (self.speed[k + 1] - self.speed[k]))


@checked
def campbell(
    model_at: Callable[[Any], LinearModel], speeds: Annotated[Float[ArrayLike, " k"], number]
) -> Campbell:
    """Compute the natural frequencies of a rotor over its speed.

    Modes at neighbouring speeds belong together if their shapes and eigenvalues are alike, so their
    lines may cross.

    **Arguments:**

    - `model_at`: the linear model at a speed, such as that of `linearise` in the state in which the
      rotor turns steadily. The system must look alike in each position of the rotor, in the
      coordinates that it is written in. This holds for round rotors in world components.
    - `speeds`: the speeds, in rising order, close enough for modes to be followed.

    **Returns:** a `Campbell`, of NumPy arrays. `mbd.plots.campbell` draws it.
    """
    speeds = np.asarray(speeds, float)
    found = [_oscillating(modes(model_at(speed))) for speed in speeds]
    count = max((s.size for s, _ in found), default=0)
    s, shapes = _padded(*found[0], count)
    rows = [s]
    for pair in found[1:]:
        new, new_shapes = _padded(*pair, count)
        # Costs: how different shapes are, and how far eigenvalues lie apart relative to their size.
        alike = np.abs(np.conj(shapes.T) @ new_shapes)
        apart = np.abs(s[:, None] - new[None]) / (np.abs(s[:, None]) + np.abs(new[None]))
        cost = np.nan_to_num(1 - alike + apart, nan=4.0)
        _, order = scipy.optimize.linear_sum_assignment(cost)
        s, shapes = new[order], new_shapes[:, order]
        rows.append(s)
    return Campbell(speeds, np.stack(rows))


def _oscillating(found: Modes) -> tuple[np.ndarray, np.ndarray]:
    s, shapes = np.asarray(found.s), np.asarray(found.shapes)
    chosen = np.imag(s) > 1e-9 * np.max(np.abs(s), initial=1e-300)
    shapes = shapes[:, chosen]
    return s[chosen], shapes / np.linalg.norm(shapes, axis=0)


def _padded(s: np.ndarray, shapes: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    missing = count - s.size
    return np.append(s, np.full(missing, np.nan)), np.pad(shapes, ((0, 0), (0, missing)))
