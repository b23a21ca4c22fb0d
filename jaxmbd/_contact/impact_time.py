"""When impacts act."""

from typing import Annotated

import equinox as eqx

from .._inputs import at_least, checked


class AtStepStart(eqx.Module):
    """An impact acts at the start of the step in which its gap would close. Each step solves one
    contact problem for all. First order, and the cheapest choice."""


@checked
class Located(eqx.Module):
    """Impacts act at the instant at which gaps close within a step. Until then the motion is a
    parabola in the coordinates, of second order. So bounces are accurate, and derivatives with
    respect to heights and restitution too. Equality rows hold along the motion, and to rounding at
    the ends of steps, as in RATTLE. This costs a second factorisation a step. Rigid contacts only.

    **Arguments:**

    - `max_per_step`: the largest number of impacts that are located within a step. After these
      impacts and the flow to the next one, the step ends as with `AtStepStart`. The entry
      `"unlocated_steps"` of `Solution.stats` counts such steps.
    - `strict`: whether such a step ends the motion with `RESULTS.impacts_unlocated`. A ball that
      comes to rest has infinitely many impacts, so it needs `False`, the default.

    Reference: Andersen (1983), Rattle: a velocity version of the Shake algorithm for molecular
    dynamics calculations, Journal of Computational Physics 52.
    """

    max_per_step: Annotated[int, at_least(1)] = eqx.field(static=True)
    strict: bool = eqx.field(static=True, default=False)
