from .base import AbstractRecord as AbstractRecord
from .base import AbstractStore as AbstractStore
from .base import Layout as Layout
from .memory import Memory as Memory
from .zarr import Zarr as Zarr
