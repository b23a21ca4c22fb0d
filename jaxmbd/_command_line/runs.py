"""Files of motions: all numbers as NPZ, joint coordinates as CSV."""

import pathlib
from typing import Any

import jax.numpy as jnp
import numpy as np

_FREE = ("x", "y", "z", "qw", "qx", "qy", "qz")
_FIELDS = ("t", "q", "v", "multipliers", "phi_norm", "phidot_norm", "contact_force")
_LOADS = ("impulse", "mean", "peak")


def columns(loaded: Any) -> list[str]:
    """Names of the entries of qpos."""
    found = []
    for joint in loaded.joints:
        entries = {"free": _FREE, "ball": _FREE[3:]}.get(joint.kind, ("",))
        found += [f"{joint.name}.{entry}" if entry else joint.name for entry in entries]
    return found


def check_output(path: str, *endings: str) -> None:
    """Check a name before the work is done. **Raises:** `ValueError` for other endings, and for a
    folder that is not there."""
    if pathlib.Path(path).suffix.lower() not in endings:
        raise ValueError(f"--output must end in {' or '.join(endings)}, but is {path!r}.")
    if not pathlib.Path(path).parent.is_dir():
        raise ValueError(
            f"--output must lie in a folder that is there, but {str(pathlib.Path(path).parent)!r} "
            "is none."
        )


def save(path: str, model: Any, solution: Any) -> None:
    """Write a motion as .npz or .csv."""
    if pathlib.Path(path).suffix.lower() == ".csv":
        qpos, _ = model.loaded.qpos_qvel(solution)
        table = np.column_stack([np.asarray(solution.t), np.asarray(qpos)])
        header = ",".join(["t", *columns(model.loaded)])
        np.savetxt(path, table, delimiter=",", header=header, comments="", fmt="%.17g")
        return
    arrays = {n: np.asarray(x) for n in _FIELDS if (x := getattr(solution, n)) is not None}
    if solution.contact_loads is not None:
        arrays |= {f"loads_{n}": np.asarray(getattr(solution.contact_loads, n)) for n in _LOADS}
    source = str(pathlib.Path(model.loaded.source).resolve())
    np.savez_compressed(path, model=source, **arrays)


def read(path: str) -> tuple[str, Any]:
    """The model file of a motion, and its solution.

    **Raises:** `ValueError` if the file is none of `save`."""
    import jaxmbd as mbd
    from jaxmbd import ContactLoads

    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        model = str(arrays.pop("model"))
    except (KeyError, ValueError, EOFError):
        raise ValueError(f"{path} is no motion that `jaxmbd simulate` has written.") from None
    if not pathlib.Path(model).is_file():
        raise ValueError(
            f"The model of {path} was at {model}, where it is no longer. Put it back, or simulate "
            "again."
        )
    fields = {name: jnp.asarray(arrays[name]) for name in _FIELDS if name in arrays}
    loads = None
    if "loads_mean" in arrays:
        loads = ContactLoads(*(jnp.asarray(arrays[f"loads_{n}"]) for n in _LOADS))
    missing = {name: None for name in _FIELDS if name not in fields}
    solution = mbd.Solution(
        **fields,
        **missing,
        ys=None,
        stats={},
        result=mbd.RESULTS.successful,
        contact_loads=loads,
    )
    return model, solution
