"""Pictures of mechanisms and their motions."""

# ruff: noqa: F401

from ._mechanism import Glyph, animate, constraint_graph, draw
from ._mechanism import plot_contacts as contacts
from ._mechanism import plot_coordinates as coordinates
from ._mechanism import plot_energies as energies
from ._mechanism import plot_reactions as reactions
from ._mechanism import plot_violation as violation
from ._mechanism import plot_workspace as workspace
from .analysis.pictures import plot_campbell as campbell
from .analysis.pictures import plot_frequency_response as frequency_response
