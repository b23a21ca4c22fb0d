from .among import contacts_among as contacts_among
from .base import AbstractContact as AbstractContact
from .base import AbstractGap as AbstractGap
from .contact import Contact as Contact
from .coordinate_limit import CoordinateLimit as CoordinateLimit
from .gap import Gap as Gap
from .joint_limit import JointLimit as JointLimit
