"""Saving of models and motions."""

from pathlib import Path
from typing import Any

from .._inputs import checked
from ..mechanism import Mechanism
from . import native
from .loaded import Loaded
from .mjcf import write_mjcf
from .trajectories import write_trajectory

_MODELS, _MOTIONS = (".json", ".xml"), (".npz", ".csv", ".zarr")


@checked
def save(model: Mechanism | Loaded, path: Any, solution: Any = None) -> None:
    """Save a model, or a motion of it. The end of the name says how:

    - `.json`: our own format, exact. `mbd.load` returns the same model, bit for bit.
    - `.xml`: MJCF, for MuJoCo. What MJCF cannot say is told in one warning.
    - `.npz`, `.csv`, `.zarr`: the motion `solution`, with the times `t`, `q`, `v`, and for a model
      that was loaded from a file also `qpos` and `qvel`. `mbd.io.load_trajectory` reads it.

    **Arguments:** `model`: a `Mechanism`, or what `load` returned; `path`; `solution` of `simulate`
    with saved times.

    **Raises:** `ValueError` for another end of the name, for a motion without `solution`, and in
    `.json` for elements with functions."""
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix in _MOTIONS:
        if solution is None:
            raise ValueError(f"{file} is for a motion: give the `solution` of `simulate`.")
        write_trajectory(file, model, solution)
        return
    if suffix not in _MODELS:
        raise ValueError(
            f"{file} must end in one of {[*_MODELS]} for a model or {[*_MOTIONS]} for a motion."
        )
    if solution is not None:
        raise ValueError(f"{file} is for a model: save the `solution` as one of {[*_MOTIONS]}.")
    if suffix == ".json":
        native.write(model, file)
    else:
        write_mjcf(model, file)
