"""Choices that several tests make."""

import diffrax

import jaxmbd as mbd


def midpoint() -> diffrax.AbstractSolver:
    """Two stages, the cheapest scheme to compile that has more than one."""
    return diffrax.Midpoint(scan_kind="bounded")


def located(count: int) -> mbd.AtStepStart | mbd.Located:
    """When impacts act: located within a step, up to so many, or at its start for none."""
    return mbd.Located(count) if count else mbd.AtStepStart()
