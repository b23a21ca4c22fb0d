"""Pictures of mechanisms and their motions."""

# ruff: noqa: F401

from .analysis.pictures import plot_campbell as campbell
from .analysis.pictures import plot_frequency_response as frequency_response
from .mechanism import Glyph, animate, constraint_graph, draw
from .mechanism import plot_contacts as contacts
from .mechanism import plot_coordinates as coordinates
from .mechanism import plot_energies as energies
from .mechanism import plot_reactions as reactions
from .mechanism import plot_violation as violation
from .mechanism import plot_workspace as workspace
