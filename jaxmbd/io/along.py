"""Scalar coordinates of the joints and tendons of a compiled model."""

import numpy as np

from ..mechanism import (
    AbstractConstraint,
    AbstractJoint,
    AbstractScalarCoordinate,
    OfJoint,
    PathLength,
    WeightedSum,
)
from .loaded import FileJoint
from .source import Source, pose


class Coordinates:
    """The scalar coordinates of a compiled model, made once each."""

    def __init__(self, source: Source, joints: list[AbstractConstraint], members: list[FileJoint]):
        self.source = source
        self._joints = {joint.name: joint for joint in joints}
        self._members = {member.name: member for member in members}

    def member(self, j: int) -> FileJoint:
        """Joint j of the file."""
        return self._members[self.source.name("joint", j)]

    def joint(self, j: int) -> OfJoint | None:
        """The coordinate of a hinge or a slide; `None` for other joints."""
        member = self.member(j)
        if member.kind not in ("hinge", "slide") or member.joint is None:
            return None
        joint = self._joints[member.joint]
        assert isinstance(joint, AbstractJoint)
        return OfJoint(joint, member.number, offset=member.zero, middle=member.middle)

    def tendon(self, k: int) -> AbstractScalarCoordinate | None:
        """The length of a tendon; `None` if it wraps round geoms."""
        source, m = self.source, self.source.m
        wraps = range(m.tendon_adr[k], m.tendon_adr[k] + m.tendon_num[k])
        kinds = [source.mujoco.mjtWrap(m.wrap_type[i]).name.removeprefix("mjWRAP_") for i in wraps]
        if set(kinds) == {"JOINT"}:
            terms = [self.joint(int(m.wrap_objid[i])) for i in wraps]
            return WeightedSum(
                [term for term in terms if term is not None],
                np.array([m.wrap_prm[i] for i in wraps]),
            )
        if not set(kinds) <= {"SITE", "PULLEY"}:
            return None
        bodies, frames, weights = [], [], []
        divisor, after_pulley = 1.0, True
        for i, kind in zip(wraps, kinds, strict=True):
            if kind == "PULLEY":
                divisor, after_pulley = float(m.wrap_prm[i]), True
                continue
            site = int(m.wrap_objid[i])
            b = int(m.site_bodyid[site])
            if bodies:
                weights.append(0.0 if after_pulley else 1 / divisor)
            after_pulley = False
            bodies.append(source.body(b))
            frames.append(pose(source.on(b, m.site_pos[site])))
        if len(set(bodies)) < 2:
            return None
        return PathLength(bodies, frames, weights=np.array(weights))
