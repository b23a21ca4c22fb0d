"""Reports on mechanisms: mobility, violations, reactions, energies."""

from .audit import Audit as Audit
from .audit import audit as audit
from .closure import JointClosure as JointClosure
from .closure import close_joints as close_joints
from .closure import joint_closure as joint_closure
from .contacts import ContactState as ContactState
from .contacts import ContactStates as ContactStates
from .contacts import contact_forces as contact_forces
from .contacts import contact_states as contact_states
from .contacts import no_force as no_force
from .contacts import over_intervals as over_intervals
from .contacts import pairs_of as pairs_of
from .generalised_forces import GeneralisedForces as GeneralisedForces
from .generalised_forces import generalised_forces as generalised_forces
from .mobility import Dependency as Dependency
from .mobility import Mobility as Mobility
from .mobility import Singularity as Singularity
from .mobility import mobility as mobility
from .mobility import singularity as singularity
from .mobility import transmission_angle as transmission_angle
from .reactions import ReactionEnvelope as ReactionEnvelope
from .reactions import reaction_envelope as reaction_envelope
from .reactions import reactions as reactions
from .reactions import unique_reactions as unique_reactions
from .violation import Violation as Violation
from .violation import violation as violation
