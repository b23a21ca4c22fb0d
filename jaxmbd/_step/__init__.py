"""The public step: `Stepper` takes the steps of a method, with verdicts, counted angles and rows
that switch."""

from .branches import counted as counted
from .branches import is_switched as is_switched
from .branches import near as near
from .branches import off_branch as off_branch
from .branches import turning as turning
from .sampled import Sampled as Sampled
from .step import Stepper as Stepper
from .step import as_control as as_control
from .step import checked_start as checked_start
from .step import with_scheme as with_scheme
