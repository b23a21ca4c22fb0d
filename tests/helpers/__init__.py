"""Small systems and all methods: the tests are their products.

A `Case` is a system with a consistent start and what is known of its motion. A `Method` is an
enforcement with whatever it needs beside it. A new one is one more item of `CASES` or `METHODS`.
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
from .controls import Feedback, Neural, Table, neural
from .differences import derivatives
from .marks import slow_unless
from .methods import (
    IMPLICIT,
    INDEPENDENT_ONLY,
    METHODS,
    SOFT,
    SOLVERS,
    SWITCHING,
    VARIANTS,
    WITHOUT_SOLVER,
    Method,
    allowed,
    located,
    method,
    midpoint,
    pairs,
)
from .motions import oscillation
from .systems import (
    DrivenPendulum,
    EqualSliderCrank,
    GuidedMass,
    Oscillator,
    Pendulum,
    RedundantPendulum,
    RotatingGuide,
    Skate,
    SkateInSpace,
    SupportedSliderCrank,
    Top,
    TwoFourBars,
    cast,
    parameter,
)
