"""Files of motions, and their columns of joint coordinates."""

import pathlib
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from .._compiler import to_jax
from .._results import messages, verdict

if TYPE_CHECKING:
    from .._simulate import Solution
    from .models import Model

_FIELDS = "t", "q", "v", "multipliers", "phi_norm", "phidot_norm", "contact_force", "contact_pairs"
_FREE = ("x", "y", "z", "qw", "qx", "qy", "qz")


def columns(loaded: Any) -> list[str]:
    """Names of the entries of qpos."""
    return [name for joint in loaded.joints for name in columns_of(joint)]


def columns_of(joint: Any) -> list[str]:
    """Names of the entries of a joint of the file."""
    entries = {"free": _FREE, "ball": _FREE[3:]}.get(joint.kind, ("",))
    return [f"{joint.name}.{entry}" if entry else joint.name for entry in entries]


def check_output(path: str, *endings: str, option: str = "--output") -> None:
    """Check a name before the work is done. **Raises:** `ValueError` for other endings, and for a
    folder that is not there."""
    if pathlib.Path(path).suffix.lower() not in endings:
        raise ValueError(f"{option} must end in {' or '.join(endings)}, but is {path!r}.")
    if not pathlib.Path(path).parent.is_dir():
        raise ValueError(
            f"{option} must lie in a folder that is there, but {str(pathlib.Path(path).parent)!r} "
            "is none."
        )


def save(path: str, model: "Model", solution: "Solution") -> None:
    """Write a motion: as .csv with the joint coordinates by name, which `jaxmbd fit` reads, or as
    .npz or .zarr by `mbd.save`."""
    import jaxmbd as mbd

    if pathlib.Path(path).suffix.lower() != ".csv":
        with warnings.catch_warnings(action="ignore"):  # the command itself tells a failure
            mbd.save(model.loaded, path, solution)
        return
    qpos, _ = model.loaded.qpos_qvel(solution)
    table = np.column_stack([np.asarray(solution.t), np.asarray(qpos)])
    header = ",".join(["t", *columns(model.loaded)])
    np.savetxt(path, table, delimiter=",", header=header, comments="", fmt="%.17g")


def read(path: str, model: str | None) -> tuple[str, list[str] | None, "Solution"]:
    """The model file of a motion as .npz, the names of its contacts, if it says, and its solution.
    `model`: the file, if it is another one than that named in the motion.

    **Raises:** `ValueError` if the file is no motion, and without a model."""
    import jaxmbd as mbd

    try:
        found = mbd.io.load_trajectory(path)
    except (ValueError, EOFError, OSError):
        raise ValueError(f"{path} is no motion of `jaxmbd simulate` or `mbd.save`.") from None
    arrays = found.columns
    model = model or str(arrays.get("model", "")) or None
    if model is None or not pathlib.Path(model).is_file():
        where = "does not name its model" if model is None else f"has its model at {model}, no file"
        raise ValueError(f"{path} {where}: give it with --model.")
    arrays |= {"t": found.t, "q": found.q, "v": found.v}
    given: Any = {n: to_jax(arrays[n]) if n in arrays else None for n in _FIELDS}
    if "loads_mean" in arrays:
        loads = {n: to_jax(arrays[f"loads_{n}"]) for n in mbd.reports.ContactLoads._fields}
        given["contact_loads"] = mbd.reports.ContactLoads(**loads)
    if "pieces_mean" in arrays:
        loads = {n: to_jax(arrays[f"pieces_{n}"]) for n in mbd.reports.PieceLoads._fields}
        given["piece_loads"] = mbd.reports.PieceLoads(**loads)
    result = verdict(np.int32(messages().index(str(arrays.get("result", messages()[0])))))
    contacts = arrays["contacts"].tolist() if "contacts" in arrays else None
    return model, contacts, mbd.Solution(**given, ys=None, stats={}, result=result)
