"""Root finding: Newton's method with the derivative of the root and the chord method, for steps;
and what searches outside of steps need."""

from .chord import Chord as Chord
from .implicit import implicit as implicit
from .implicit import least_solution as least_solution
from .implicit import linearised_by as linearised_by
from .implicit import newton_root as newton_root
from .implicit import root as root
from .newton import Change as Change
from .newton import Measure as Measure
from .newton import Unknowns as Unknowns
from .newton import solve_step as solve_step
