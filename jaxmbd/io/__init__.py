"""Models from files, and back."""

from .load import load as load
from .loaded import Control as Control
from .loaded import FileJoint as FileJoint
from .loaded import FrameReading as FrameReading
from .loaded import HeldControl as HeldControl
from .loaded import InFrame as InFrame
from .loaded import JointReading as JointReading
from .loaded import Loaded as Loaded
from .loaded import ScalarReading as ScalarReading
from .loaded import Visual as Visual
from .save import save as save
from .trajectories import Trajectory as Trajectory
from .trajectories import load_trajectory as load_trajectory
