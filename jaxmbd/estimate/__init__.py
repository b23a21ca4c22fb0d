"""States and parameters on line: a Kalman filter on the constraints, its smoother, and a moving
horizon."""

from .belief import Belief as Belief
from .belief import Innovation as Innovation
from .filter import Filter as Filter
from .gaussian import LinearMap as LinearMap
from .horizon import MovingHorizon as MovingHorizon
from .horizon import Window as Window
from .noise import AbstractProcessNoise as AbstractProcessNoise
from .noise import ContinuousNoise as ContinuousNoise
from .noise import DiscreteNoise as DiscreteNoise
from .rules import AbstractRule as AbstractRule
from .rules import Extended as Extended
from .rules import Images as Images
from .rules import Unscented as Unscented
from .run import FilterRun as FilterRun
from .run import NisTest as NisTest
from .run import SmoothedRun as SmoothedRun
