"""Feedback along a motion."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from .._printed import counted, judged, printed, span
from .._results import RESULTS
from .._tangent_space import difference
from .._types import RealScalarLike
from ..trajopt import AbstractControl
from .nominal import Nominal


@printed
class TrackingFeedback(AbstractControl):
    r"""The control $u = \bar u(t) - K(t) \, dx$ with the deviation
    $dx = (q \ominus \bar q(t),\; v - \bar v(t))$ from a motion, for `simulate`, `Stepper` and
    `trajopt`. Deviations across the constraints have no effect. Gains are interpolated between the
    points of the motion. After its end, the state and the inputs there
    are the aim.

    **Fields:**

    - `gains`: K, `(n + 1, nu, 2 nv)`.
    - `value`: P, `(n + 1, 2 nv, 2 nv)`: from each point on, a small deviation dx costs dx^T P dx.
    - `nominal`: the motion, with its inputs.
    - `result`: `RESULTS.successful`, or why the gains are not to be used.
    """

    constants: ClassVar[tuple[str, ...]] = ("value", "nominal", "result")

    gains: Float[Array, "*batch points nu nx"]
    value: Float[Array, "*batch points nx nx"]
    nominal: Nominal
    result: RESULTS

    def __str__(self) -> str:
        points, nu = self.gains.shape[-3:-1]
        verdict = judged(self.result, "feedback found", "no feedback found")
        gains = f"gains of {counted(nu, 'input')} at {counted(points, 'point')}, {span(self.gains)}"
        return f"{verdict}\n{gains}"

    def __call__(self, t, q, v):
        k, _ = self.nominal.place(t)
        return self.in_interval(k, t, q, v)

    def in_interval(self, k, t: RealScalarLike, q, v):
        """The control at a time that belongs to interval k, its ends included."""
        s = self.nominal.share(k, t)
        K = (1 - s) * self.gains[k] + s * self.gains[k + 1]
        dx = difference(self.nominal.system, self.nominal.state(k, s), (q, v))
        return self.nominal.structured(self.nominal.u(k, s) - K @ dx)

    def within(self, t, q, v):
        del q, v
        k, _ = self.nominal.place(t)
        return _During(self, k)


@printed
class SampledFeedback(AbstractControl):
    r"""The control $u = \bar u(t) - K_k \, dx(t_k)$ of a digital controller: the deviation from a
    motion is measured at the beginning of each interval, and its correction is held through the
    interval. `mbd.trajopt.perform` has such intervals, those of its `Problem`. `simulate` has none,
    so there the deviation is measured at each time.

    **Fields:**

    - `gains`: K, `(n, nu, 2 nv)`.
    - `value`: P, `(n + 1, 2 nv, 2 nv)`: from each point on, a small deviation dx costs dx^T P dx.
    - `nominal`: the motion, with its inputs.
    - `result`: `RESULTS.successful`, or why the gains are not to be used.
    """

    constants: ClassVar[tuple[str, ...]] = ("value", "nominal", "result")

    gains: Float[Array, "*batch n nu nx"]
    value: Float[Array, "*batch points nx nx"]
    nominal: Nominal
    result: RESULTS

    def __str__(self) -> str:
        points, nu = self.gains.shape[-3:-1]
        verdict = judged(self.result, "feedback found", "no feedback found")
        held = f"held from {counted(points, 'point')}"
        gains = f"gains of {counted(nu, 'input')} {held}, {span(self.gains)}"
        return f"{verdict}\n{gains}"

    def __call__(self, t, q, v):
        return self.within(t, q, v)(t, q, v)

    def within(self, t, q, v):
        k, s = self.nominal.place(t)
        dx = difference(self.nominal.system, self.nominal.state(k, s), (q, v))
        return _Corrected(self.nominal, k, self.gains[k] @ dx)


class _Corrected(eqx.Module):
    """The inputs of a motion in one interval, minus a constant correction."""

    nominal: Nominal
    k: Array
    correction: Array

    def __call__(self, t, q, v):
        del q, v
        u = self.nominal.u(self.k, self.nominal.share(self.k, t))
        return self.nominal.structured(u - self.correction)


class _During(eqx.Module):
    """The feedback in one interval. At its end, inputs that jump have not jumped yet."""

    feedback: TrackingFeedback
    k: Array

    def __call__(self, t, q, v):
        return self.feedback.in_interval(self.k, t, q, v)
