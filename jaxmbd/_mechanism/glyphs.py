"""The glyphs that show elements in pictures."""

import enum


class Glyph(enum.Enum):
    """A sign for an element in pictures. A class of elements names its own in `glyphs`, and
    `mbd.plots.draw` and `mbd.view` draw them. a is the first frame of the element, b the last."""

    BALL = "a ball at b, and a thin line between the frames where they are apart"
    BEAD = "a small ball at b"
    PAD = "a small block at b"
    BLOCK = "a block at b"
    PIN = "a pin along the axis of b"
    CROSS = "two arms, along x of a and y of b"
    RAIL = "the axis of a, as far as b"
    SLIDER = "a square sleeve at b"
    SLEEVE = "a round sleeve at b"
    THREAD = "a helix around the sleeve"
    SHEET = "the plane of x and y of a"
    ROD = "a rod between a and b"
    COIL = "a coil between a and b"
    SPIRAL = "a spiral about the axis of a"
    TURN = "a turn about the axis of a"
    CUSHION = "a soft ball at a"
    PULL = "a line between a and b"
