"""Simulation: the step, and the loops over it.

`Stepper` is the step. `simulate` loops over it at fixed steps (`fixed.py`), or lets diffrax adapt
the steps (`adaptive.py`). `continuous.py`, `split.py`, `contact.py`, `alpha.py` and
`variational.py` hold the steps of the families of methods.
"""

from .continuous import motion_at as motion_at
from .fixed import Saved as Saved
from .fixed import integrate_fixed as integrate_fixed
from .saving import Grid as Grid
from .saving import LoopOptions as LoopOptions
from .saving import Saving as Saving
from .saving import make_grid as make_grid
from .schemes import RK4 as RK4
from .schemes import CrankNicolson as CrankNicolson
from .schemes import RolledRK4 as RolledRK4
from .schemes import SemiImplicitEuler as SemiImplicitEuler
from .simulate import observed as observed
from .simulate import simulate as simulate
from .solution import ContactLoads as ContactLoads
from .solution import Solution as Solution
from .split import free_field as free_field
from .state import ContactMemory as ContactMemory
from .state import StepperState as StepperState
from .state import finite as finite
from .state import without_past as without_past
from .stepper import Stepper as Stepper
from .stepper import as_control as as_control
from .steps import SimulationProblem as SimulationProblem
from .steps import at_start as at_start
from .switching import is_switched as is_switched
from .turns import near as near
from .turns import off_branch as off_branch
from .turns import turning as turning
