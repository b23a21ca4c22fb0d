"""Reports on mechanisms: mobility, violations, reactions, energies."""

from .audit import Audit as Audit
from .audit import audit as audit
from .contacts import ContactState as ContactState
from .contacts import ContactStates as ContactStates
from .contacts import contact_forces as contact_forces
from .contacts import contact_states as contact_states
from .contacts import no_force as no_force
from .contacts import over_intervals as over_intervals
from .envelope import ReactionEnvelope as ReactionEnvelope
from .envelope import reaction_envelope as reaction_envelope
from .generalised_forces import GeneralisedForces as GeneralisedForces
from .generalised_forces import generalised_forces as generalised_forces
from .joint_closure import JointClosure as JointClosure
from .joint_closure import close_joints as close_joints
from .joint_closure import joint_closure as joint_closure
from .mobility import Dependency as Dependency
from .mobility import Mobility as Mobility
from .mobility import mobility as mobility
from .reactions import reactions as reactions
from .reactions import unique_reactions as unique_reactions
from .singularity import Singularity as Singularity
from .singularity import singularity as singularity
from .transmission import transmission_angle as transmission_angle
from .violation import Violation as Violation
from .violation import violation as violation
