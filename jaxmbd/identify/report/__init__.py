"""A page that says whether to trust a fit, and shows why."""

from .report import Report as Report
from .report import report as report
