"""Models from files, and back."""

from .load import load as load
from .loaded import Control as Control
from .loaded import FileJoint as FileJoint
from .loaded import Loaded as Loaded
from .loaded import Visual as Visual
