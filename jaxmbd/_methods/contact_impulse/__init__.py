from .method import ContactImpulse as ContactImpulse
from .problems import ContactProblems as ContactProblems
from .problems import Given as Given
from .problems import coefficients as coefficients
from .problems import contact_groups as contact_groups
from .problems import is_compliant as is_compliant
