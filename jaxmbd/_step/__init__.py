"""The public step: `Stepper` takes the steps of a method, with verdicts, counted angles and rows
that switch."""

from .step import Stepper as Stepper
from .step import as_control as as_control
from .step import with_scheme as with_scheme
from .switching import is_switched as is_switched
from .turns import counted as counted
from .turns import near as near
from .turns import off_branch as off_branch
from .turns import turning as turning
