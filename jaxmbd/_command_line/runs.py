"""Files of motions: all numbers as NPZ, joint coordinates as CSV."""

import pathlib
from typing import Any

import numpy as np

from .._compiler import to_jax
from .._results import messages, verdict

_FREE = ("x", "y", "z", "qw", "qx", "qy", "qz")
_FIELDS = ("t", "q", "v", "multipliers", "phi_norm", "phidot_norm", "contact_force")
_LOADS = ("impulse", "mean", "peak")


def columns(loaded: Any) -> list[str]:
    """Names of the entries of qpos."""
    return [name for joint in loaded.joints for name in columns_of(joint)]


def columns_of(joint: Any) -> list[str]:
    """Names of the entries of a joint of the file."""
    entries = {"free": _FREE, "ball": _FREE[3:]}.get(joint.kind, ("",))
    return [f"{joint.name}.{entry}" if entry else joint.name for entry in entries]


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
    """Write a motion: as .npz with everything, as .csv with the joint coordinates by name, which
    `jaxmbd fit` reads, or as .zarr by `mbd.save`."""
    import jaxmbd as mbd

    ending = pathlib.Path(path).suffix.lower()
    if ending == ".zarr":
        mbd.save(model.loaded, path, solution)
        return
    qpos, qvel = model.loaded.qpos_qvel(solution)
    if ending == ".csv":
        table = np.column_stack([np.asarray(solution.t), np.asarray(qpos)])
        header = ",".join(["t", *columns(model.loaded)])
        np.savetxt(path, table, delimiter=",", header=header, comments="", fmt="%.17g")
        return
    arrays = {n: np.asarray(x) for n in _FIELDS if (x := getattr(solution, n)) is not None}
    if solution.contact_loads is not None:
        arrays |= {f"loads_{n}": np.asarray(getattr(solution.contact_loads, n)) for n in _LOADS}
    source = str(pathlib.Path(model.loaded.source).resolve())
    texts = {"model": np.asarray(source), "contacts": np.asarray(model.contacts)}
    texts["result"] = np.asarray(mbd.RESULTS[solution.result])
    arrays |= {"qpos": np.asarray(qpos), "qvel": np.asarray(qvel)} | texts
    with open(path, "wb") as file:
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]


def read(path: str, model: str | None) -> tuple[str, str, Any]:
    """The model file of a motion, the contacts that were kept, and its solution. `model`: the
    file, if it is another one than that named in the motion.

    **Raises:** `ValueError` if the file is none of `save`, and without a model."""
    import jaxmbd as mbd

    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        for name in ("t", "q", "v"):
            arrays[name]
    except (KeyError, ValueError, EOFError, OSError):
        raise ValueError(f"{path} is no motion that `jaxmbd simulate` has written.") from None
    model = model or str(arrays.pop("model", "")) or None
    if model is None or not pathlib.Path(model).is_file():
        where = "does not name its model" if model is None else f"has its model at {model}, no file"
        raise ValueError(f"{path} {where}: give it with --model.")
    given: Any = {n: to_jax(arrays[n]) if n in arrays else None for n in _FIELDS}
    loads = None
    if "loads_mean" in arrays:
        loads = mbd.reports.ContactLoads(*(to_jax(arrays[f"loads_{n}"]) for n in _LOADS))
    # Files of `mbd.save` have no verdict: it warns when it writes a motion that failed.
    result = verdict(np.int32(messages().index(str(arrays.get("result", messages()[0])))))
    solution = mbd.Solution(**given, ys=None, stats={}, result=result, contact_loads=loads)
    return model, str(arrays.get("contacts", "all")), solution
