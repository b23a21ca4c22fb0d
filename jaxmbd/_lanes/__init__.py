"""Several samples of a program, or several tangents, in the vector lanes of a CPU."""

from .jacobian import forward_jacobian as forward_jacobian
from .jacobian import jacfwd as jacfwd
from .lanes import LANES as LANES
from .lanes import in_lanes as in_lanes
