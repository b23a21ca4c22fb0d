"""Loading of models from files."""

from pathlib import Path
from typing import Any

import numpy as np

from ..mechanism import Body, Mechanism
from .bodies import tree
from .loaded import Control, Loaded
from .source import Source, pose
from .visuals import visuals


def load(path: Any) -> Loaded:
    """Load a model from a file in MJCF or URDF."""
    mujoco = _mujoco()
    spec = path if isinstance(path, mujoco.MjSpec) else mujoco.MjSpec.from_file(str(Path(path)))
    m = spec.compile()
    source = Source(mujoco, spec, m, path=spec.modelname if path is spec else str(path))
    return translated(source)


def translated(source: Source) -> Loaded:
    """A compiled model as a mechanism."""
    m = source.m
    parts = tree(source)
    gravity = np.zeros(3) if "gravity" in source.off else np.array(m.opt.gravity)
    bodies = [Body(name, inertia) for name, inertia in parts.inertias.items()]
    mechanism = Mechanism(bodies, parts.joints, gravity=gravity)
    loaded = Loaded(
        mechanism,
        mechanism.state(),
        tuple(Control(f"u{i}", -np.inf, np.inf) for i in range(m.nu)),
        tuple(source.dropped),
        tuple(parts.members),
        tuple(parts.branches),
        visuals(source),
        _frames(source),
        {},
        {},
        {},
        float(m.opt.timestep),
        source.path,
    )
    return _placed(loaded, np.array(m.qpos0), parts)


def _placed(loaded: Loaded, qpos: np.ndarray, parts: Any) -> Loaded:
    """The model with its bodies where the file starts."""
    import dataclasses

    state = loaded.state_from(qpos)
    mechanism, bodies = loaded.mechanism, []
    for name, inertia in parts.inertias.items():
        at = mechanism.pose(state.q, name)
        bodies.append(Body(name, inertia, position=at.position, orientation=at.orientation))
    placed = Mechanism(
        bodies, mechanism.joints, mechanism.forces, mechanism.contacts, gravity=mechanism.gravity
    )
    return dataclasses.replace(loaded, mechanism=placed, state=placed.state())


def _frames(source: Source) -> dict[str, Any]:
    m = source.m
    found = {
        source.name("site", i): (
            source.body(m.site_bodyid[i]),
            pose(source.on(m.site_bodyid[i], m.site_pos[i], m.site_quat[i])),
        )
        for i in range(m.nsite)
    }
    return found | {
        source.name("body", b): (source.body(b), pose(source.rest[b])) for b in range(1, m.nbody)
    }


def _mujoco() -> Any:
    try:
        import mujoco
    except ImportError as error:
        raise ImportError(
            'Reading models needs MuJoCo, which is not installed: pip install "jaxmbd[io]".'
        ) from error
    return mujoco
