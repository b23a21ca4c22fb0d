"""Motions as files: NPZ, CSV and Zarr."""

import csv
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from .._mechanism import Mechanism
from .._printed import counted, printed, span
from .._results import RESULTS, succeeded
from .loaded import Loaded, parts

# Numbers of a `Solution` and of its loads in NPZ and Zarr, beside t, q and v.
_FIELDS = ("multipliers", "phi_norm", "phidot_norm", "contact_force", "contact_pairs")
_LOADS = ("impulse", "mean", "peak")


@printed
class Trajectory(NamedTuple):
    """A motion from a file.

    **Fields:** `t` [s], shape `(times,)`; `q`, `v`: `(times, nq)` and `(times, nv)`; `columns`: the
    other arrays by name.
    """

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    columns: dict[str, np.ndarray]

    def __str__(self) -> str:
        what = f"{counted(len(self.t), 'sample')} from {span(self.t, 's')}"
        what += f", {self.q.shape[-1]} coordinates"
        return f"{what}; columns: {', '.join(self.columns) or 'none'}"


def write_trajectory(path: Path, model: Mechanism | Loaded, solution: Any) -> None:
    """Write a saved motion."""
    t, q, v = (np.asarray(x) for x in (solution.t, solution.q, solution.v))
    if t.ndim != 1 or q.ndim != 2:
        raise ValueError(
            f"A trajectory needs saved times, but `t` has shape {t.shape}: pass "
            "`saveat=diffrax.SaveAt(...)` to `simulate`, and one sample at a time."
        )
    if not succeeded(solution.result):
        warnings.warn(
            f"The simulation failed, and {path.name} holds its last state from there: "
            f"{RESULTS[solution.result]}",
            stacklevel=4,  # beyond `checked`
        )
    (mechanism, loaded), columns = parts(model), {}
    if loaded is not None and loaded.joints:
        qpos, qvel = (np.asarray(x) for x in loaded.qpos_qvel(solution))
        columns = {"qpos": qpos, "qvel": qvel}
    q, v = np.asarray(mechanism.checked_q(q)), np.asarray(mechanism.checked_v(v))
    suffix = path.suffix.lower()
    if suffix == ".csv":
        _write_csv(path, mechanism, t, q, v, columns)
        return
    arrays = {"t": t, "q": q, "v": v, **columns}
    owners: list[tuple[Any, str, tuple[str, ...]]] = [(solution, "", _FIELDS)]
    for name, prefix in (("contact_loads", "loads_"), ("piece_loads", "pieces_")):
        owners.append((getattr(solution, name, None), prefix, _LOADS))
    for owner, prefix, names in owners:
        given = ((name, getattr(owner, name, None)) for name in names)
        arrays |= {prefix + name: np.asarray(x) for name, x in given if x is not None}
    if suffix == ".zarr":
        _write_zarr(path, arrays)
        return
    names = [contact.name for contact in mechanism.contacts]
    texts = {"contacts": np.array(names, str), "result": RESULTS[solution.result]}
    if loaded is not None and Path(loaded.source).is_file():
        texts["model"] = str(Path(loaded.source).resolve())
    np.savez_compressed(path, **arrays, **texts)


def load_trajectory(path: Any) -> Trajectory:
    """Read a motion that `mbd.save` has written as NPZ, CSV or Zarr.

    **Raises:** `ValueError` for another file."""
    file = Path(path)
    if not file.exists():
        raise ValueError(f"There is no file {str(file)!r} to load a trajectory from.")
    suffix = file.suffix.lower()
    if suffix == ".npz":
        with np.load(file) as arrays:
            found = dict(arrays)
    elif suffix == ".zarr":
        group = _zarr().open_group(str(file), mode="r")
        found = {name: np.asarray(group[name]) for name in group}
    elif suffix == ".csv":
        found = _read_csv(file)
    else:
        raise ValueError(f"{file} is no trajectory: the name must end in .npz, .csv or .zarr.")
    if not {"t", "q", "v"} <= set(found):
        raise ValueError(f"{file} holds {sorted(found)}, but a trajectory needs t, q and v.")
    return Trajectory(found.pop("t"), found.pop("q"), found.pop("v"), found)


def _zarr() -> ModuleType:
    try:
        import zarr
    except ImportError:
        raise ImportError('Zarr is missing: pip install "jaxmbd[rollout]".') from None
    return zarr


def _write_zarr(path: Path, arrays: dict[str, np.ndarray]) -> None:
    group = _zarr().open_group(str(path), mode="w")
    for name, array in arrays.items():
        group.create_array(name, data=np.ascontiguousarray(array))


_Q = ("x", "y", "z", "qw", "qx", "qy", "qz")
_V = ("vx", "vy", "vz", "wx", "wy", "wz")
# In a plane.
_Q_FLAT, _V_FLAT = ("x", "y", "angle"), ("vx", "vy", "omega")


def _write_csv(path, mechanism, t, q, v, columns) -> None:
    names = mechanism.body_stack.names
    head = ["t"]
    of_q, of_v = (_Q, _V) if mechanism.plane is None else (_Q_FLAT, _V_FLAT)
    head += [f"{body}.{part}" for part in (*of_q, *of_v) for body in names]
    tables = [t[:, None], q, v]
    for what, table in columns.items():
        head += [f"{what}[{i}]" for i in range(table.shape[1])]
        tables.append(table)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(np.concatenate(tables, axis=1).tolist())


def _read_csv(path: Path) -> dict[str, np.ndarray]:
    with path.open(newline="") as file:
        head, *rows = list(csv.reader(file))
    table = np.array(rows, float).reshape(len(rows), len(head))

    def chosen(fits):
        return table[:, [i for i, name in enumerate(head) if fits(name)]]

    found = {
        "q": chosen(lambda name: name.rpartition(".")[2] in {*_Q, *_Q_FLAT} and "." in name),
        "v": chosen(lambda name: name.rpartition(".")[2] in {*_V, *_V_FLAT} and "." in name),
    }
    if "t" in head:
        found["t"] = table[:, head.index("t")]
    for what in ("qpos", "qvel"):
        own = chosen(lambda name, what=what: name.startswith(f"{what}["))
        if own.shape[1]:
            found[what] = own
    return found
