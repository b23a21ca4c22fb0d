"""Root finding within steps: Newton's method with the derivative of the root, and the chord
method."""

from .chord import Chord as Chord
from .newton import Change as Change
from .newton import Measure as Measure
from .newton import Unknowns as Unknowns
from .newton import solve_step as solve_step
