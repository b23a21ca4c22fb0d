"""From a system and a state to a motion: one step, and the loops over it.

`Stepper` is the step; `simulate` loops over it at fixed steps (`fixed.py`), or has diffrax adapt
them (`adaptive.py`). What a family of methods does in a step stands in `continuous.py`, `split.py`
and `contact.py`.
"""

from .schemes import RK4 as RK4
from .schemes import CrankNicolson as CrankNicolson
from .schemes import SemiImplicitEuler as SemiImplicitEuler
from .simulate import simulate as simulate
from .solution import ContactLoads as ContactLoads
from .solution import Solution as Solution
from .state import ContactMemory as ContactMemory
from .state import StepperState as StepperState
from .stepper import Stepper as Stepper
