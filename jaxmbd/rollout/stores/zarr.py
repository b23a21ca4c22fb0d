"""Outputs on disk, by Zarr."""

import pathlib
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..._results import messages
from ..processes import gathered
from .base import AbstractRecord, AbstractStore, Layout

_CONFIGURATION = "jaxmbd.rollout"
_CHUNK_BYTES = 2**24  # larger ones of the disk are unwieldy


class Zarr(AbstractStore):
    """Streams the outputs to a folder, in the format of Zarr: a group with an array
    `outputs/<name>` for each leaf, named by its path in what the function returned, and the array
    `status` with the number of each sample's verdict, -1 as long as it is not there. The texts of
    the verdicts are in the attributes of the group.

    A run that was interrupted goes on where it stopped if it is started again with the same path;
    the files are then the same as if nothing had happened. All processes of a run must see the
    same folder. `Rollouts.outputs` is the group, open for reading; from elsewhere,
    `zarr.open_group(path, mode="r")["outputs/q"][:1000]`.

    **Arguments:**

    - `path`: of the folder; made if it is not there.

    **Raises:** `ImportError` without the package `zarr`; when opened, `ValueError` for a folder
    that belongs to a run with another number of samples, other samples, key or outputs, or that
    holds something else.
    """

    path: str = eqx.field(converter=str)

    def open(self, layout: Layout) -> "ZarrRecord":
        # One process makes the arrays; the others wait for it, and hear of its error if it has one.
        error = None
        if jax.process_index() == 0:
            try:
                _prepare(self.path, layout)
            except (ImportError, ValueError) as caught:
                error = caught
        error = gathered(error)[0]
        if error is not None:
            raise error
        return ZarrRecord(self.path, layout)


class ZarrRecord(AbstractRecord):
    """Arrays in a folder."""

    def __init__(self, path: str, layout: Layout):
        self.group = _zarr().open_group(path, mode="r+")
        self.arrays: list[Any] = [self.group[f"outputs/{name}"] for name in layout.named()]
        self.structure = jax.tree.structure(layout.output)
        self.array: Any = self.group["status"]
        self.status = np.asarray(self.array[:])
        self.rows = max(x.chunks[0] for x in [*self.arrays, self.array])

    def write(self, first, outputs, status):
        stop = first + len(status)
        for array, x in zip(self.arrays, jax.tree.leaves(outputs), strict=True):
            array[first:stop] = np.asarray(x)
        self.array[first:stop] = status
        self.status[first:stop] = status

    def read(self, first, stop):
        return jax.tree.unflatten(self.structure, [x[first:stop] for x in self.arrays])

    def result(self):
        return _zarr().open_group(self.group.store, mode="r")


def _zarr():
    try:
        import zarr
    except ImportError as error:
        raise ImportError(
            'Outputs on disk need the package zarr: `pip install "jaxmbd[rollout]"`.'
        ) from error
    return zarr


def _prepare(path: str, layout: Layout) -> None:
    """The group with all its arrays, empty; or one that was made before, by the same run."""
    zarr, named = _zarr(), layout.named()
    configuration = {
        "samples": layout.n,
        "values of the samples": layout.samples,
        "key": layout.key,
        "outputs": {name: [str(s.dtype), *s.shape] for name, s in named.items()},
        "verdicts": messages(),
    }
    folder = pathlib.Path(path)
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        # Written at once, before everything else: so an interrupted run is known by it.
        zarr.create_group(path, attributes={_CONFIGURATION: configuration})
    try:
        group = zarr.open_group(path, mode="r+")
        there = group.attrs[_CONFIGURATION]
    except (FileNotFoundError, FileExistsError, NotADirectoryError, KeyError):
        raise ValueError(
            f"`{path}` is there already and holds something else than rollouts. Give another path."
        ) from None
    _compare(path, there, configuration)

    def array(name, shape, dtype, fill):
        row = np.dtype(dtype).itemsize * max(1, int(np.prod(shape)))
        rows = layout.block
        while rows > 1 and rows * row > _CHUNK_BYTES:
            rows //= 2
        group.require_array(
            name,
            shape=(layout.n, *shape),
            dtype=dtype,
            chunks=(rows, *(max(1, s) for s in shape)),
            fill_value=fill,
        )

    for name, s in named.items():
        floating = np.issubdtype(s.dtype, np.inexact)
        array(f"outputs/{name}", s.shape, s.dtype, np.nan if floating else 0)
    array("status", (), "int16", -1)


def _compare(path: str, there: Any, here: dict[str, Any]) -> None:
    for name, value in here.items():
        if there.get(name) != value:
            shown = "" if name in ("verdicts", "values of the samples") else (
                f" ({there.get(name)} there, {value} here)"
            )  # fmt: skip
            raise ValueError(
                f"`{path}` belongs to another run, of other {name}{shown}. Go on with what that "
                "run was started with, or give another path."
            )
