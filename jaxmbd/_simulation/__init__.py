"""Simulation: the step, and the loops over it.

`Stepper` is the step. `simulate` loops over it at fixed steps (`fixed.py`), or lets diffrax adapt
the steps (`adaptive.py`). `continuous.py`, `split.py` and `contact.py` hold the steps of the
families of methods.
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
