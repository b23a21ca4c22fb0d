"""The command `jaxmbd`."""

from .commands import main as main
