"""The equations of a system: mass matrix, force, and constraint rows."""

from .equations import AbstractEquations as AbstractEquations
from .equations import among as among
from .equations import equations as equations
from .equations import pieces_of as pieces_of
from .equations import specialised as specialised
from .internal import carrying as carrying
from .internal import inputs as inputs
from .structured import AbstractStructuredSystem as AbstractStructuredSystem
from .structured import ConstraintRows as ConstraintRows
from .structured import Turning as Turning
