"""Pictures of mechanisms by matplotlib, which is imported only when a picture is made."""

from .animation import animate as animate
from .drawing import draw as draw
from .drawing import given_or_new as given_or_new
from .drawing import pyplot as pyplot
from .graph import constraint_graph as constraint_graph
from .plots import plot_contacts as plot_contacts
from .plots import plot_coordinates as plot_coordinates
from .plots import plot_energies as plot_energies
from .plots import plot_reactions as plot_reactions
from .plots import plot_violation as plot_violation
from .plots import plot_workspace as plot_workspace
