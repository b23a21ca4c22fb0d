"""Where bodies, elements and forces are in pictures of a motion, for any renderer. Arrays are of
NumPy, and their leading axis is the picture."""

from .colors import BODIES as BODIES
from .colors import FORCE as FORCE
from .colors import GROUND_EDGE as GROUND_EDGE
from .colors import GROUND_FILL as GROUND_FILL
from .colors import GUIDE as GUIDE
from .colors import INK as INK
from .colors import body_colors as body_colors
from .frames import WorldFrames as WorldFrames
from .frames import across as across
from .frames import are_apart as are_apart
from .frames import attachments as attachments
from .frames import body_frames as body_frames
from .frames import concrete as concrete
from .frames import element_frames as element_frames
from .frames import helix as helix
from .frames import matrices as matrices
from .frames import spiral as spiral
from .frames import symbol_size as symbol_size
from .frames import unit as unit
from .motion import PointForces as PointForces
from .motion import contact_arrows as contact_arrows
from .motion import coordinates_between as coordinates_between
from .motion import has_coordinates as has_coordinates
from .motion import interpolated as interpolated
from .motion import joint_curves as joint_curves
from .motion import one_motion as one_motion
from .motion import point_forces as point_forces
from .shapes import Placed as Placed
from .shapes import Visual as Visual
from .shapes import equal_box as equal_box
from .shapes import farthest as farthest
from .shapes import hull as hull
from .shapes import placed_shapes as placed_shapes
from .shapes import surface as surface
