"""Small systems, and what many tests do with them.

A `Case` is a system with a consistent start and what is known of its motion. A new one is one more
item of `CASES`.
"""

# ruff: noqa: F401

from .bars import BOX, three_bars
from .cases import CASES, Case
from .compilation import (
    COMPILED,
    COMPILING,
    OPTIMISED,
    compilation_events,
    in_the_way,
    nothing_kept,
)
from .controls import Feedback, Table
from .differences import both_modes, check_scalar, derivatives
from .marks import slow_unless
from .methods import located, midpoint
from .motions import oscillation
from .systems import (
    Ball,
    DrivenPendulum,
    G,
    GuidedMass,
    Oscillator,
    Pendulum,
    RedundantPendulum,
    SkateInSpace,
    Top,
    TwoFourBars,
    cast,
    parameter,
)
from .verdicts import assert_verdicts
