"""Colours."""

from ..body import GROUND
from ..mechanism import Mechanism

INK = "#2b2f36"
GUIDE = "#9aa1ab"
GROUND_EDGE = "#70757d"
GROUND_FILL = "#dfe2e7"
FORCE = "#b0413e"
BODIES = (
    "#3b6ea8", "#e08a3c", "#4f9d69", "#c8504f", "#7d6bb0", "#4aa5b8", "#9a7b5c", "#d183b4",
)  # fmt: skip


def body_colors(mechanism: Mechanism) -> dict[str, str]:
    """The colour of each body and of the ground."""
    names = mechanism.body_stack.names
    colors = {name: BODIES[i % len(BODIES)] for i, name in enumerate(names)}
    return colors | {GROUND: GROUND_EDGE}
