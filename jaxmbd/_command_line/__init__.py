"""The command `jaxmbd`."""

from .main import main as main
