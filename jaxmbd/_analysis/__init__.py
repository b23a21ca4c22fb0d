from .gradient_check import CheckedDerivative as CheckedDerivative
from .gradient_check import GradientCheck as GradientCheck
from .gradient_check import check_gradients as check_gradients
from .nonfinite import NonfiniteOrigin as NonfiniteOrigin
from .nonfinite import first_nonfinite as first_nonfinite
from .tangent_growth import TangentGrowth as TangentGrowth
from .tangent_growth import tangent_growth as tangent_growth
