"""The iterative searches of identification and trajectory optimisation, with one driver for all."""

from .box import bounded_least_squares as bounded_least_squares
from .box import normal_inverse as normal_inverse
from .checkpoint import Checkpoint as Checkpoint
from .checkpoint import NoCheckpoint as NoCheckpoint
from .driver import Monitor as Monitor
from .driver import iterate as iterate
from .driver import once as once
from .gradients import Iterate as Iterate
from .gradients import as_minimiser as as_minimiser
from .gradients import first_iterate as first_iterate
from .gradients import next_iterate as next_iterate
from .levenberg_marquardt import levenberg_marquardt as levenberg_marquardt
from .multipliers import Multipliers as Multipliers
from .multipliers import largest_violation as largest_violation
from .rank import DEPENDENT as DEPENDENT
from .rank import ROUNDED as ROUNDED
from .rank import nonzero as nonzero
from .rank import redundancy as redundancy
from .rank import rounding as rounding
from .rank import simulation_error as simulation_error
from .with_value import with_value as with_value
