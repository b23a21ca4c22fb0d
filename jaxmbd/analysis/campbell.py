"""Campbell diagrams: natural frequencies over the speed of a rotor, and the senses of whirl."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import equinox as eqx
import numpy as np
import scipy.optimize
from jaxtyping import ArrayLike, Complex, Float, Int

from .._compiler import as_one_program
from .._inputs import checked, number, positive
from .._linalg import dense
from .._mechanism import Mechanism
from .._printed import printed
from .._system import AbstractSystem
from .._types import Coordinates, MassMatrix
from .linearise import LinearModel
from .modes import modes

# Eigenvalues count as equal if they differ by less than this share of their size.
_SAME = 1e-7

# Shares of the kinetic energy of a mode in the planes of whirl below which it does not whirl.
_BESIDE = 1e-6

# Sizes of `whirl` below which an orbit counts as straight.
_STRAIGHT = 1e-3


@printed
class CriticalSpeeds(eqx.Module):
    """The critical speeds of a rotor in rising order; `print` them.

    **Fields:** for m critical speeds,

    - `speed`: `(m,)`, in the unit of the diagram.
    - `mode`: the column of `Campbell.s` that is excited, `(m,)`.
    - `whirl`: of the mode there, as in `Campbell`, `(m,)`.
    - `frequency`: of the mode there [Hz], `(m,)`.
    - `order`: the frequency of the excitation divided by the rotation's.
    """

    speed: Float[np.ndarray, " m"]
    mode: Int[np.ndarray, " m"]
    whirl: Float[np.ndarray, " m"]
    frequency: Float[np.ndarray, " m"]
    order: float

    @property
    def sense(self) -> list[str]:
        """Of each critical speed: "forward", "backward" or "straight", or "" for modes without
        whirl and if the planes of whirl are unknown."""
        return [_sense(x) for x in self.whirl]

    def __str__(self) -> str:
        if not self.speed.size:
            return f"no critical speed of order {self.order:g} in the diagram"
        rows = [
            f"critical speeds of order {self.order:g}:",
            "     speed  mode  frequency [Hz]  whirl",
        ]
        for x, i, f, sense in zip(self.speed, self.mode, self.frequency, self.sense, strict=True):
            rows.append(f"{x:10.6g}  {i:4d}  {f:14.6g}  {sense or '-'}")
        return "\n".join(rows)


@printed
class Campbell(eqx.Module):
    """The oscillating modes of a system at several speeds, each followed from speed to speed;
    `print` it.

    **Fields:** for k speeds and n modes, NaN where a mode does not oscillate,

    - `speed`: `(k,)`, in the unit that was given, such as rad/s.
    - `s`: eigenvalues with positive imaginary parts [1/s], `(k, n)`.
    - `whirl`: `(k, n)`. 1 is forward whirl on circles, in the sense of the rotation, and -1
      backward whirl. Orbits on ellipses lie between, and those on straight lines have 0. It is NaN
      for modes without motion across the axis, and if the planes of whirl are unknown.
    """

    speed: Float[np.ndarray, " k"]
    s: Complex[np.ndarray, "k n"]
    whirl: Float[np.ndarray, "k n"]

    @property
    def frequency(self) -> Float[np.ndarray, "k n"]:
        """Frequencies of the damped oscillation [Hz]."""
        return np.imag(self.s) / (2 * np.pi)

    @property
    def damping_ratio(self) -> Float[np.ndarray, "k n"]:
        """-Re s / |s|."""
        return -np.real(self.s) / np.abs(self.s)

    def __str__(self) -> str:
        first, last = f"{self.speed[0]:.6g}", f"{self.speed[-1]:.6g}"
        rows = [
            f"{self.s.shape[1]} modes at {self.speed.size} speeds from {first} to {last}",
            f"mode  frequency at {first} [Hz]  at {last} [Hz]  whirl at {last}",
        ]
        for i, (f, x) in enumerate(zip(self.frequency.T, self.whirl[-1], strict=True)):
            rows.append(f"{i:4d}  {f[0]:.6g}  {f[-1]:.6g}  {_sense(x) or '-'}")
        return "\n".join(rows)

    @checked
    def critical_speeds(
        self,
        order: Annotated[float, positive] = 1.0,
        *,
        per_second: Annotated[float, positive] = 1.0,
    ) -> CriticalSpeeds:
        """The speeds at which a mode has the angular frequency order * speed, interpolated linearly
        between the speeds of the diagram, with the mode and the sense of its whirl. Unbalance
        (order 1) of a round rotor excites forward whirl only.

        **Arguments:** `per_second`: rad/s for a speed of 1.
        """
        off = np.imag(self.s) - order * per_second * np.abs(self.speed[:, None])
        before, after = off[:-1], off[1:]
        crosses = (before > 0) != (after > 0)
        crosses &= np.isfinite(before) & np.isfinite(after)
        k, mode = np.nonzero(crosses)
        share = before[k, mode] / (before - after)[k, mode]

        def at(x):
            return x[k] + share * (x[k + 1] - x[k])

        def of_mode(x):
            return x[k, mode] + share * (x[k + 1, mode] - x[k, mode])

        speed = at(self.speed)
        rising = np.argsort(speed, kind="stable")
        return CriticalSpeeds(
            speed[rising],
            mode[rising],
            of_mode(self.whirl)[rising],
            of_mode(self.frequency)[rising],
            float(order),
        )


@checked
def campbell(
    model_at: Callable[[float], LinearModel],
    speeds: Annotated[Float[ArrayLike, " k"], number],
    *,
    axis: Annotated[Float[ArrayLike, "3"] | None, number] = None,
    planes: Sequence[tuple[int, int]] | None = None,
) -> Campbell:
    r"""Compute the natural frequencies of a rotor over its speed, and the senses of its whirl.

    Modes at neighbouring speeds belong together if their shapes and eigenvalues are alike, so their
    lines may cross.

    The sense of whirl comes from the orbits $(x_i, y_i)$ of a mode in planes across the axis, with
    the masses or moments of inertia $m_i$ of their velocities,

    $$ w = \frac{-2 \sum_i m_i \,\mathrm{Im}(\bar x_i y_i)}{\sum_i m_i (|x_i|^2 + |y_i|^2)} . $$

    The planes are the shifts and the tilts of all bodies. Modes of equal frequency, such as those
    of a round rotor at rest, are told apart by their sense of whirl.

    **Arguments:**

    - `model_at`: the linear model at a speed, for example by `linearise` in the state in which the
      rotor turns steadily. The system must look alike in each position of the rotor, in the
      coordinates that it is written in. This holds for round rotors in world components.
    - `speeds`: the speeds, in rising order, close enough for modes to be followed.
    - `axis`: for a `Mechanism`, the direction in world axes about which the rotor turns when the
      speed is positive. By default it is the fastest body's.
    - `planes`: for other systems, pairs of places in v, such as `[(0, 1), (3, 4)]` for the
      velocities along x and y and the angular velocities about x and y of a rotor that turns about
      z. A rotor of positive speed turns from the first to the second.

    **Returns:** a `Campbell`, of NumPy arrays. `mbd.plots.campbell` draws it. Without `planes` the
    sense of whirl of a system that is no `Mechanism` is NaN.

    **Raises:** `ValueError` for an axis of length 0 and for places that are not in v.
    """
    speeds = np.asarray(speeds, float)
    models = [model_at(speed) for speed in speeds]
    whirling = _planes(models, speeds, axis, planes)
    found = [
        _oscillating(model, whirling, speed) for model, speed in zip(models, speeds, strict=True)
    ]
    count = max((s.size for s, *_ in found), default=0)
    s, shapes, whirl = _padded(*found[0], count)
    rows, senses = [s], [whirl]
    for part in found[1:]:
        new, new_shapes, whirl = _padded(*part, count)
        # Costs: how different shapes are, and how far eigenvalues lie apart relative to their size.
        alike = np.abs(np.conj(shapes.T) @ new_shapes)
        apart = np.abs(s[:, None] - new[None]) / (np.abs(s[:, None]) + np.abs(new[None]))
        cost = np.nan_to_num(1 - alike + apart, nan=4.0)
        _, order = scipy.optimize.linear_sum_assignment(cost)
        s, shapes = new[order], new_shapes[:, order]
        rows.append(s)
        senses.append(whirl[order])
    return Campbell(speeds, np.stack(rows), np.stack(senses))


def _planes(
    models: Sequence[LinearModel], speeds: np.ndarray, axis: Any, planes: Any
) -> np.ndarray | None:
    """The planes of whirl: two directions of v for each, `(planes, 2, nv)`; `None` if unknown."""
    system, nv = models[0].system, models[0].Z.shape[0] // 2
    if planes is not None:
        if axis is not None or not len(planes):
            raise ValueError("Give either `axis` or at least one pair of `planes`.")
        if not all(0 <= i < nv for pair in planes for i in pair):
            raise ValueError(
                f"Argument `planes` must have places from 0 to {nv - 1} in v, but is {planes}."
            )
        return np.eye(nv)[np.asarray(planes)]
    if not isinstance(system, Mechanism):
        if axis is not None:
            raise ValueError(
                f"Argument `axis` is for a `Mechanism`: give `planes` for {type(system).__name__}."
            )
        return None
    names = [body.name for body in system.bodies]
    if axis is None:
        fastest = int(np.argmax(np.abs(speeds)))
        v = models[fastest].state.v
        spins = np.stack([np.asarray(system.twist(v, name).angular) for name in names])
        axis = spins[np.argmax(np.linalg.norm(spins, axis=1))]
        if not np.any(axis):
            return None
        axis = axis * np.sign(speeds[fastest] or 1.0)
    axis = np.asarray(axis, float)
    if not np.any(axis):
        raise ValueError("Argument `axis` must not have length 0.")
    across = _across(axis / np.linalg.norm(axis))
    found = []
    for name in names:
        own = system.indices(name)
        if system.plane is None:
            groups = [(own.linear, across), (own.angular, across)]
        else:
            groups = [(own.linear, across @ np.asarray(system.plane.axes)[:2].T)]
        for places, directions in groups:
            plane = np.zeros((2, nv))
            plane[:, places] = directions
            found.append(plane)
    return np.stack(found)


def _across(axis: np.ndarray) -> np.ndarray:
    """Two unit vectors that make a right-handed system with the axis."""
    first = np.cross(axis, np.eye(3)[np.argmin(np.abs(axis))])
    first = first / np.linalg.norm(first)
    return np.stack([first, np.cross(axis, first)])


@as_one_program
def _mass_matrix(system: AbstractSystem, q: Coordinates) -> MassMatrix:
    return dense(system.mass_matrix(q))


def _oscillating(
    model: LinearModel, planes: np.ndarray | None, speed: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues, shapes of length 1, and senses of whirl."""
    all_modes = modes(model)
    s, shapes = np.asarray(all_modes.s), np.asarray(all_modes.shapes)
    chosen = np.imag(s) > 1e-9 * np.max(np.abs(s), initial=1e-300)
    s, shapes = s[chosen], shapes[:, chosen]
    shapes = shapes / np.linalg.norm(shapes, axis=0)
    if planes is None:
        return s, shapes, np.full(s.size, np.nan)
    M = np.asarray(_mass_matrix(model.system, model.state.q), float)
    nv = len(M)
    m = np.einsum("pdi,ij,pdj->p", planes, M, planes) / 2
    turn = -1.0 if speed < 0 else 1.0

    def momentum(a, b):
        (ax, ay), (bx, by) = (np.einsum("pdi,ij->dpj", planes, x[:nv]) for x in (a, b))
        # For a = b this is 2 sum m_i Im(x_i conj(y_i)), a Hermitian form of a and b.
        return turn * 1j * (np.conj(ax.T) @ (m[:, None] * by) - np.conj(ay.T) @ (m[:, None] * bx))

    shapes = _told_apart(s, shapes, momentum)
    x, y = np.einsum("pdi,ij->dpj", planes, shapes[:nv])
    size = m @ (np.abs(x) ** 2 + np.abs(y) ** 2)
    energy = np.einsum("ij,ik,kj->j", np.conj(shapes[:nv]), M, shapes[:nv]).real
    whirls = size > _BESIDE * energy
    whirl = np.real(np.diagonal(momentum(shapes, shapes))) / np.where(whirls, size, 1.0)
    return s, shapes, np.where(whirls, whirl, np.nan)


def _told_apart(s: np.ndarray, shapes: np.ndarray, momentum: Callable) -> np.ndarray:
    """The shapes; shapes of equal eigenvalues are combined to forward and backward whirl."""
    shapes, left = shapes.copy(), list(range(s.size))
    while left:
        own = [i for i in left if np.abs(s[i] - s[left[0]]) <= _SAME * np.abs(s[left[0]])]
        left = [i for i in left if i not in own]
        if len(own) == 1:
            continue
        basis, sizes, _ = np.linalg.svd(shapes[:, own], full_matrices=False)
        if sizes[-1] > 1e-3 * sizes[0]:  # else there are fewer shapes than eigenvalues
            shapes[:, own] = basis @ np.linalg.eigh(momentum(basis, basis))[1]
    return shapes


def _sense(whirl: float) -> str:
    if np.isnan(whirl):
        return ""
    if np.abs(whirl) < _STRAIGHT:
        return "straight"
    return "forward" if whirl > 0 else "backward"


def _padded(s: np.ndarray, shapes: np.ndarray, whirl: np.ndarray, count: int) -> tuple:
    missing = count - s.size
    none = np.full(missing, np.nan)
    return np.append(s, none), np.pad(shapes, ((0, 0), (0, missing))), np.append(whirl, none)
