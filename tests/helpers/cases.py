"""Systems with consistent starts and what is known of their motions."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

import jaxmbd as mbd

from . import motions as m
from . import systems as s


@dataclasses.dataclass(frozen=True)
class Case:
    """A system, its start at t = 0, and its motion t -> (q, v) up to t = 4, exact or to 1e-11."""

    system: mbd.AbstractSystem
    motion: Callable[[Any], tuple[np.ndarray, np.ndarray]]
    control: Any = None
    rank: int = 1  # of the rows

    @property
    def state(self) -> mbd.State:
        return mbd.State(0.0, *self.motion(0.0))


def _cases():
    guided, free = s.GuidedMass(), s.GuidedMass(stiffness=0.0, damping=0.0)
    pendulum, driven, top, space = s.Pendulum(), s.DrivenPendulum(), s.Top(), s.SkateInSpace()
    swing, glide = m.pendulum_motion(pendulum, 2.0), m.guided_motion(guided, 0.7, -0.4)
    return {
        "oscillator": Case(s.Oscillator(), m.oscillator_motion(s.Oscillator(), 0.7, -0.4), rank=0),
        "guided_mass": Case(guided, glide),
        "controlled_mass": Case(free, glide, control=s.Feedback()),
        "pendulum": Case(pendulum, swing),
        "redundant_pendulum": Case(s.RedundantPendulum(pendulum), swing),
        "driven_pendulum": Case(driven, m.driven_motion(driven, 0.8, 0.5)),
        "top": Case(top, m.top_motion(top, 0.6, 3.0), rank=3),
        "skate_in_space": Case(space, m.skate_motion(space, 1.5), rank=2),
    }


CASES: dict[str, Case] = _cases()
