"""Analysis of a system besides its motion: equilibria, linear models, modes, inverse dynamics, and
whether derivatives of a motion can be trusted."""

from .campbell import Campbell as Campbell
from .campbell import campbell as campbell
from .equilibrium import EquilibriumReport as EquilibriumReport
from .equilibrium import equilibrium as equilibrium
from .gradient_check import CheckedDerivative as CheckedDerivative
from .gradient_check import GradientCheck as GradientCheck
from .gradient_check import check_gradients as check_gradients
from .inverse_dynamics import Inputs as Inputs
from .inverse_dynamics import accelerations as accelerations
from .inverse_dynamics import inverse_dynamics as inverse_dynamics
from .inverse_dynamics import static_inputs as static_inputs
from .linear_motion import DiscreteMotion as DiscreteMotion
from .linear_motion import LinearMotion as LinearMotion
from .linear_motion import linearise_along as linearise_along
from .linearise import LinearModel as LinearModel
from .linearise import linearise as linearise
from .lqr import StateFeedback as StateFeedback
from .lqr import lqr as lqr
from .mode_shapes import Participation as Participation
from .mode_shapes import mode_motion as mode_motion
from .mode_shapes import participation as participation
from .modes import Modes as Modes
from .modes import modes as modes
from .nonfinite import NonfiniteOrigin as NonfiniteOrigin
from .nonfinite import first_nonfinite as first_nonfinite
from .tangent_growth import TangentGrowth as TangentGrowth
from .tangent_growth import tangent_growth as tangent_growth
from .tracking import SampledFeedback as SampledFeedback
from .tracking import TrackingFeedback as TrackingFeedback
