"""Small systems, and what many tests do with them.

A `Case` is a system with a consistent start and what is known of its motion. A new one is one more
item of `CASES`.
"""

# ruff: noqa: F401, F403

from .cases import CASES, Case
from .choices import assert_verdicts, located, midpoint, slow_unless
from .compilation import COMPILED, OPTIMISED, compilation_events, in_the_way, nothing_kept
from .differences import both_modes, check_scalar, derivatives, with_slopes
from .motions import oscillation
from .systems import *
