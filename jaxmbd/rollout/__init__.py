"""Thousands to millions of rollouts, in chunks, on all devices and processes, with statistics or
with outputs on disk."""

from .reductions import AbstractReduction as AbstractReduction
from .reductions import Covariance as Covariance
from .reductions import CovarianceResult as CovarianceResult
from .reductions import Extremes as Extremes
from .reductions import ExtremesResult as ExtremesResult
from .reductions import Histogram as Histogram
from .reductions import HistogramResult as HistogramResult
from .reductions import Mean as Mean
from .reductions import Moments as Moments
from .reductions import MomentsResult as MomentsResult
from .result import Failures as Failures
from .result import Rollouts as Rollouts
from .run import run as run
from .stores import AbstractRecord as AbstractRecord
from .stores import AbstractStore as AbstractStore
from .stores import Layout as Layout
from .stores import Memory as Memory
from .stores import Zarr as Zarr
from .vmapped import kernel as kernel
