"""What is asked of a mechanism: mobility, violations, reactions, energies."""

from .assembly import Assembly as Assembly
from .assembly import assembly as assembly
from .assembly import close_joints as close_joints
from .audit import Audit as Audit
from .audit import audit as audit
from .contacts import ContactState as ContactState
from .contacts import ContactStates as ContactStates
from .contacts import contact_forces as contact_forces
from .contacts import contact_states as contact_states
from .mobility import Dependency as Dependency
from .mobility import Mobility as Mobility
from .mobility import mobility as mobility
from .reactions import reactions as reactions
from .reactions import unique_reactions as unique_reactions
from .singularity import Singularity as Singularity
from .singularity import singularity as singularity
from .violation import Violation as Violation
from .violation import violation as violation
