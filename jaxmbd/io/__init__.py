"""Models from files, and back."""

from .load import load as load
from .loaded import Control as Control
from .loaded import FileJoint as FileJoint
from .loaded import HeldControl as HeldControl
from .loaded import Loaded as Loaded
from .loaded import Visual as Visual
from .readings import FrameReading as FrameReading
from .readings import InFrame as InFrame
from .readings import JointReading as JointReading
from .readings import ScalarReading as ScalarReading
from .save import save as save
from .trajectories import Trajectory as Trajectory
from .trajectories import load_trajectory as load_trajectory
