"""`simulate`: the loop over `Stepper.step` at fixed steps (`fixed.py`), or diffrax's loop, which
adapts the steps (`adaptive.py`)."""

from .fixed import Saved as Saved
from .fixed import integrate_fixed as integrate_fixed
from .saving import Grid as Grid
from .saving import LoopOptions as LoopOptions
from .saving import Saving as Saving
from .saving import make_grid as make_grid
from .simulate import observed as observed
from .simulate import simulate as simulate
from .solution import ContactLoads as ContactLoads
from .solution import Solution as Solution
