"""`simulate`: the loop over `Stepper.step` at fixed steps (`simulate.py`), with observers of the
motion (`observers.py`), or the loop of diffrax, which adapts the steps (`adaptive.py`)."""

from .grid import Grid as Grid
from .grid import LoopOptions as LoopOptions
from .grid import Saving as Saving
from .grid import make_grid as make_grid
from .observers import Saved as Saved
from .simulate import integrate_fixed as integrate_fixed
from .simulate import observed as observed
from .simulate import simulate as simulate
from .solution import ContactLoads as ContactLoads
from .solution import PieceLoads as PieceLoads
from .solution import Solution as Solution
