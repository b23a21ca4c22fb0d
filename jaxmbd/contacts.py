"""Contacts of a mechanism, laws of impact and friction, and the bases of your own."""

from ._contact import AbstractFriction as AbstractFriction
from ._contact import AbstractImpactLaw as AbstractImpactLaw
from ._contact import AtStepStart as AtStepStart
from ._contact import Cone as Cone
from ._contact import ContactLaw as ContactLaw
from ._contact import ContactRows as ContactRows
from ._contact import Located as Located
from ._contact import Newton as Newton
from ._contact import Poisson as Poisson
from ._contact import Pyramid as Pyramid
from ._mechanism import AbstractContact as AbstractContact
from ._mechanism import AbstractGap as AbstractGap
from ._mechanism import Contact as Contact
from ._mechanism import ContactPoints as ContactPoints
from ._mechanism import CoordinateLimit as CoordinateLimit
from ._mechanism import DryFriction as DryFriction
from ._mechanism import Gap as Gap
from ._mechanism import JointLimit as JointLimit
from ._mechanism import NearContacts as NearContacts
from ._mechanism import collide as collide
from ._mechanism import contacts_among as contacts_among
