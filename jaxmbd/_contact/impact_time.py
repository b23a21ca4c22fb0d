"""When impacts act."""

from typing import Annotated

import equinox as eqx

from .._inputs import at_least, checked


class AtStepStart(eqx.Module):
    """An impact acts at the start of the step in which its gap would close, together with all else:
    one contact problem a step. First order, and the cheapest."""


@checked
class Located(eqx.Module):
    """Impacts act where gaps vanish within a step. The motion until an impact is a parabola in the
    coordinates, of second order, so that bounces, and derivatives with respect to heights and
    restitution, are accurate. Rows of equality hold along it, at the ends of steps to rounding, as
    in RATTLE, which costs a second factorisation a step. Rigid contacts only.

    **Arguments:** `max_per_step`: how many impacts may be located within a step. What is left of a
    step after that many, and the flow to the next one, is done as with `AtStepStart`.

    Reference: Andersen (1983), Rattle: a velocity version of the Shake algorithm for molecular
    dynamics calculations, Journal of Computational Physics 52.
    """

    max_per_step: Annotated[int, at_least(1)] = eqx.field(static=True)
