"""Analysis of a system besides its motion: equilibria, linear models, modes, inverse dynamics, and
whether derivatives of a motion can be trusted."""

from .equilibrium import EquilibriumReport as EquilibriumReport
from .equilibrium import equilibrium as equilibrium
from .gradient_check import CheckedDerivative as CheckedDerivative
from .gradient_check import GradientCheck as GradientCheck
from .gradient_check import check_gradients as check_gradients
from .inverse_dynamics import Inputs as Inputs
from .inverse_dynamics import inverse_dynamics as inverse_dynamics
from .linearise import LinearModel as LinearModel
from .linearise import linearise as linearise
from .lqr import StateFeedback as StateFeedback
from .lqr import lqr as lqr
from .modes import Modes as Modes
from .modes import modes as modes
from .nonfinite import NonfiniteOrigin as NonfiniteOrigin
from .nonfinite import first_nonfinite as first_nonfinite
from .tangent_growth import TangentGrowth as TangentGrowth
from .tangent_growth import tangent_growth as tangent_growth
