from .contact import AbstractContact as AbstractContact
from .contact import Contact as Contact
from .contact import contacts_among as contacts_among
from .gaps import AbstractGap as AbstractGap
from .gaps import CoordinateLimit as CoordinateLimit
from .gaps import Gap as Gap
from .gaps import JointLimit as JointLimit
