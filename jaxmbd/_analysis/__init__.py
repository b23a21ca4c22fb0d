from .gradient_check import CheckedDerivative as CheckedDerivative
from .gradient_check import GradientCheck as GradientCheck
from .gradient_check import check_gradients as check_gradients
from .tangent_growth import TangentGrowth as TangentGrowth
from .tangent_growth import tangent_growth as tangent_growth
