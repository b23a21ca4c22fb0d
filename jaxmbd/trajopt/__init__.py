"""Trajectory optimisation: the best controls of a constrained motion."""

from .bounds import AbstractBounds as AbstractBounds
from .bounds import Projected as Projected
from .bounds import Squash as Squash
from .controls import AbstractControl as AbstractControl
from .controls import Feedback as Feedback
from .controls import Held as Held
from .controls import PiecewiseConstant as PiecewiseConstant
from .controls import PiecewiseLinear as PiecewiseLinear
from .controls import Sampled as Sampled
from .controls import Saturated as Saturated
from .controls import Squashed as Squashed
from .expansion import AbstractExpansion as AbstractExpansion
from .expansion import FirstOrder as FirstOrder
from .expansion import SecondOrder as SecondOrder
from .ilqr import ilqr as ilqr
from .multipliers import Multipliers as Multipliers
from .plan import Plan as Plan
from .plan import perform as perform
from .problem import Problem as Problem
from .receding_horizon import Pursuit as Pursuit
from .receding_horizon import receding_horizon as receding_horizon
from .shooting import best as best
from .shooting import multi_start as multi_start
from .shooting import shooting as shooting
from .status import STATUS as STATUS
