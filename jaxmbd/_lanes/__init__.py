"""Several samples of a program, or several tangents, in the vector lanes of a CPU; and how to read
a program."""

from .jacobian import forward_jacobian as forward_jacobian
from .jacobian import jacfwd as jacfwd
from .lanes import LANES as LANES
from .lanes import in_lanes as in_lanes
from .uniform import call_of as call_of
from .uniform import equations_of as equations_of
from .uniform import is_literal as is_literal
from .uniform import opened as opened
from .uniform import scan_parts as scan_parts
from .uniform import while_parts as while_parts
