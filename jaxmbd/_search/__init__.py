"""The iterative searches of identification and trajectory optimisation, with one driver for all."""

from .driver import Checkpoint as Checkpoint
from .driver import Monitor as Monitor
from .driver import NoCheckpoint as NoCheckpoint
from .driver import iterate as iterate
from .driver import once as once
from .least_squares import DEPENDENT as DEPENDENT
from .least_squares import ROUNDED as ROUNDED
from .least_squares import bounded_least_squares as bounded_least_squares
from .least_squares import levenberg_marquardt as levenberg_marquardt
from .least_squares import nonzero as nonzero
from .least_squares import normal_inverse as normal_inverse
from .least_squares import redundancy as redundancy
from .least_squares import rounding as rounding
from .least_squares import simulation_error as simulation_error
from .minimisers import Iterate as Iterate
from .minimisers import Multipliers as Multipliers
from .minimisers import Optimiser as Optimiser
from .minimisers import as_minimiser as as_minimiser
from .minimisers import first_iterate as first_iterate
from .minimisers import largest_violation as largest_violation
from .minimisers import next_iterate as next_iterate
from .minimisers import with_value as with_value
