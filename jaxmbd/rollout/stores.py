"""Stores for the outputs of samples: in memory, and on disk in the format of Zarr."""

import abc
import hashlib
import itertools
import json
import math
import os
import pathlib
import pickle
import shutil
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import PyTree

from .._extensible import Extensible
from .._inputs import checked
from .._results import is_verdict, messages
from .._sizes import check_fits, format_bytes, host_bytes
from .files import unfinished, write_whole


def gathered(x: Any) -> list[Any]:
    """The values of `x` on all processes, in their order, on every process."""
    if jax.process_count() == 1:
        return [x]
    data = np.frombuffer(pickle.dumps(x), np.uint8)
    lengths = multihost_utils.process_allgather(np.asarray(data.size, np.int32))
    padded = np.zeros(np.max(lengths), np.uint8)
    padded[: data.size] = data
    rows = np.asarray(multihost_utils.process_allgather(padded))
    return [pickle.loads(row[:length]) for row, length in zip(rows, lengths, strict=True)]


class Layout(NamedTuple):
    """The contents of a store, and the data that identify a run.

    **Fields:**

    - `n`: number of samples.
    - `output`: shapes and dtypes of the output of one sample, a pytree of `jax.ShapeDtypeStruct`.
    - `key`: data of the random key, a list of integers.
    - `samples`: digest of the samples.
    - `block`: number of samples that are written at once, a power of two.
    """

    n: int
    output: PyTree[jax.ShapeDtypeStruct]
    key: list[int]
    samples: str
    block: int

    @property
    def bytes(self) -> int:
        """The size of the output of one sample."""
        return sum(math.prod(s.shape) * s.dtype.itemsize for s in jax.tree.leaves(self.output))

    def named(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The leaves of `output` with their names."""
        leaves = jax.tree_util.tree_leaves_with_path(self.output, is_leaf=is_verdict)
        return {
            jax.tree_util.keystr(path, simple=True, separator="/") or "output": x
            for path, x in ((path, jax.tree.leaves(leaf)[0]) for path, leaf in leaves)
        }


class AbstractRecord(abc.ABC):
    """A store that one process has opened.

    **Fields:** `status`, shape `(n,)`: the number of each sample's verdict, or -1 for samples that
    are not stored yet.
    """

    status: np.ndarray
    # Number of consecutive samples that one process must write, a power of two.
    rows: int

    @abc.abstractmethod
    def write(self, first: int, outputs: PyTree, status: np.ndarray) -> None:
        """Write the samples first, first + 1, ...: first their outputs, then their status. So after
        an interruption no sample counts as written that is not."""

    @abc.abstractmethod
    def read(self, first: int, stop: int) -> PyTree[np.ndarray]:
        """Outputs of the samples first ... stop - 1."""

    @abc.abstractmethod
    def result(self) -> Any:
        """The outputs for the user, when all samples are written."""


class AbstractStore(Extensible):
    """A store for the outputs of all samples. A new kind is a subclass with its own
    `AbstractRecord`."""

    @abc.abstractmethod
    def open(self, layout: Layout) -> AbstractRecord:
        """Start a new run, or resume one after an interruption. Called once on each process."""


class Memory(AbstractStore):
    """Keeps all outputs in the memory of the host. `Rollouts.outputs` is then the pytree that the
    function returned, as NumPy arrays with a leading axis of n samples. If a run has several
    processes, each of them gets all outputs."""

    def open(self, layout: Layout) -> "MemoryRecord":
        return MemoryRecord(layout)


class MemoryRecord(AbstractRecord):
    """One array for each leaf, and the ranges that this process has written."""

    def __init__(self, layout: Layout):
        shapes = layout.output
        check_fits(
            layout.n * layout.bytes,
            f"Outputs of {layout.n} samples take",
            "keep them on disk by `store=mbd.rollout.Zarr(path)`, or statistics of them by "
            "`reductions=`, or return less of each sample",
            host_bytes(),
        )
        self.status = np.full(layout.n, -1, np.int16)
        self.rows = 1
        self.outputs = jax.tree.map(lambda s: np.zeros((layout.n, *s.shape), s.dtype), shapes)
        self.written: list[tuple[int, int]] = []

    def write(self, first, outputs, status):
        stop = first + len(status)
        for whole, part in zip(
            jax.tree.leaves(self.outputs), jax.tree.leaves(outputs), strict=True
        ):
            whole[first:stop] = part
        self.status[first:stop] = status
        self.written.append((first, stop))

    def read(self, first, stop):
        return jax.tree.map(lambda x: x[first:stop], self.outputs)

    def result(self):
        if jax.process_count() > 1:
            mine = [(a, b, jax.tree.leaves(self.read(a, b))) for a, b in self.written]
            for a, b, parts in itertools.chain.from_iterable(gathered(mine)):
                for whole, part in zip(jax.tree.leaves(self.outputs), parts, strict=True):
                    whole[a:b] = part
        return self.outputs


_CONFIGURATION = "jaxmbd.rollout"
_CHUNK_BYTES = 2**24  # larger ones of the disk are unwieldy
_DIGEST_BYTES = 32
_SHOWN = 3  # damaged files in a warning


@checked
class Zarr(AbstractStore):
    """Streams the outputs to a folder in the format of Zarr. It is a group with an array
    `outputs/<name>` for each leaf, named by its path in the returned pytree, and the array `status`
    with the number of each sample's verdict, or -1 for samples that are not stored yet. The
    attributes of the group hold the messages of the verdicts.

    To resume an interrupted run, start it again with the same path. The files are then the same as
    without the interruption. All processes of a run must see the same folder. `Rollouts.outputs` is
    the group, open for reading. Elsewhere, read it by `zarr.open_group(path,
    mode="r")["outputs/q"][:1000]`.

    Each file is written under a temporary name, synced and renamed. Row k of the array `checksums`
    holds the SHA-256 digests of all files of the k-th chunk of samples, in the order of the arrays.
    It is written after the files. A chunk counts as stored if all its files have these digests.
    Otherwise a warning names the damaged files, and their samples are computed again. Another one
    names damaged or missing files of metadata, which are written again.

    **Arguments:**

    - `path`: of the folder, which is created if necessary.

    **Raises:** `ImportError` without the package `zarr`; when opened, `ValueError` for a folder
    that belongs to a run with another number of samples, other samples, key or outputs, or that
    holds something else.
    """

    path: str | os.PathLike = eqx.field(converter=str)

    def open(self, layout: Layout) -> "ZarrRecord":
        # One process writes the metadata. The others wait for it and raise its error, if there is
        # one.
        rows, error = None, None
        if jax.process_index() == 0:
            try:
                rows = _prepare(pathlib.Path(self.path), layout)
            except (ImportError, ValueError) as caught:
                error = caught
        rows, error = gathered((rows, error))[0]
        if error is not None:
            raise error
        return ZarrRecord(pathlib.Path(self.path), layout, rows)


class ZarrRecord(AbstractRecord):
    """Arrays in a folder, written in chunks of `rows` samples."""

    def __init__(self, folder: pathlib.Path, layout: Layout, rows: int):
        self.folder, self.n, self.rows = folder, layout.n, rows
        # Zarr encodes the arrays in memory; the files are written from there.
        self.files, template = _template(layout, rows)
        group = _zarr().open_group(str(folder), mode="r")
        names = [*(f"outputs/{name}" for name in layout.named()), "status"]
        self.encoded: list[Any] = [template[name] for name in names]
        self.arrays: list[Any] = [group[name] for name in names]
        self.checksums: Any = template["checksums"]
        self.structure = jax.tree.structure(layout.output)
        self.pending: dict[int, list[list[np.ndarray]]] = {}
        self._verify()
        self.status = np.full(self.n, -1, np.int16)
        for k in self._sealed():
            samples = self._samples(k)
            self.status[samples] = self.arrays[-1][samples]
        needed, free = layout.bytes * np.sum(self.status < 0), shutil.disk_usage(folder).free
        if needed > free and jax.process_index() == 0:
            warnings.warn(
                f"The outputs that are still to be computed take {format_bytes(int(needed))}, less "
                f"what compression saves, but the disk of `{folder}` has {format_bytes(free)} "
                "left: return less of each sample, or use a larger disk.",
                stacklevel=4,
            )

    def write(self, first, outputs, status):
        columns = [*map(np.asarray, jax.tree.leaves(outputs)), status]
        done = 0
        while done < len(status):
            k = (first + done) // self.rows
            samples = self._samples(k)
            some = slice(done, min(len(status), samples.stop - first))
            pieces = self.pending.setdefault(k, [])
            pieces.append([x[some] for x in columns])
            if sum(len(piece[-1]) for piece in pieces) == samples.stop - samples.start:
                del self.pending[k]
                self._store(k, [np.concatenate(x) for x in zip(*pieces, strict=True)])
            done = some.stop

    def read(self, first, stop):
        return jax.tree.unflatten(self.structure, [x[first:stop] for x in self.arrays[:-1]])

    def result(self):
        return _zarr().open_group(str(self.folder), mode="r")

    def _samples(self, k: int) -> slice:
        """The samples of a chunk."""
        return slice(k * self.rows, min((k + 1) * self.rows, self.n))

    def _store(self, k: int, columns: list[np.ndarray]) -> None:
        samples = self._samples(k)
        for array, x in zip(self.encoded, columns, strict=True):
            array[samples] = x
        digests = np.zeros(self.checksums.shape[1:], np.uint8)
        for i, name in enumerate(self._names(k)):
            data = self._encoded(name)
            if data is not None:
                digests[i] = _digest(data)
                write_whole(self.folder / name, data)
        self.checksums[k] = digests
        data = self._encoded(self._seal(k).relative_to(self.folder).as_posix())
        assert data is not None
        write_whole(self._seal(k), data)
        self.status[samples] = columns[-1]

    def _encoded(self, name: str) -> bytes | None:
        """The content of a file. Zarr makes no file for a chunk that holds only fill values."""
        data = self.files.pop(name, None)
        return None if data is None else data.to_bytes()

    def _sealed(self) -> list[int]:
        """The chunks of samples that have a row of checksums."""
        folder = self._seal(0).parents[2]
        count = math.ceil(self.n / self.rows)
        names = [x.name for x in folder.iterdir()] if folder.is_dir() else []
        found = sorted(int(name) for name in names if name.isdecimal())
        return [k for k in found if k < count and self._seal(k).exists()]

    def _seal(self, k: int) -> pathlib.Path:
        return self.folder / f"checksums/c/{k}/0/0"

    def _names(self, k: int) -> list[str]:
        """The names of all files of a chunk of samples."""
        samples, names = self._samples(k), []
        for array in self.encoded:
            rows = array.chunks[0]
            for i in range(samples.start // rows, math.ceil(samples.stop / rows)):
                place = (i, *[0] * (len(array.shape) - 1))
                names.append(f"{array.path}/{array.metadata.encode_chunk_key(place)}")
        return names

    def _verify(self) -> None:
        """Remove the files of each chunk with a damaged file. The processes share the work and wait
        for each other."""
        found = []
        for k in self._sealed():
            if k % jax.process_count() != jax.process_index():
                continue
            damaged = self._damaged(k)
            if damaged:
                found.append((k, damaged))
                self._seal(k).unlink()
                for name in self._names(k):
                    (self.folder / name).unlink(missing_ok=True)
        found = sorted(itertools.chain.from_iterable(gathered(found)))
        if found and jax.process_index() == 0:
            ranges = [self._samples(k) for k, _ in found]
            samples = ", ".join(f"{s.start} to {s.stop - 1}" for s in ranges)
            files = [name for _, names in found for name in names]
            warnings.warn(
                f"In `{self.folder}`, {_some(files)} differ from what was written: samples "
                f"{samples} are computed again.",
                stacklevel=5,
            )

    def _damaged(self, k: int) -> list[str]:
        """Names of the files of a chunk that differ from their checksums."""
        seal = self._seal(k)
        digests = seal.read_bytes()
        if len(digests) != math.prod(self.checksums.shape[1:]):
            return [seal.relative_to(self.folder).as_posix()]
        damaged = []
        for i, name in enumerate(self._names(k)):
            file = self.folder / name
            digest = _digest(file.read_bytes()) if file.exists() else np.zeros(_DIGEST_BYTES)
            written = np.frombuffer(digests, np.uint8)[i * _DIGEST_BYTES :][:_DIGEST_BYTES]
            if not np.array_equal(digest, written):
                damaged.append(name)
        return damaged


def _digest(data: bytes) -> np.ndarray:
    return np.frombuffer(hashlib.sha256(data).digest(), np.uint8)


def _zarr():
    try:
        import zarr
    except ImportError as error:
        raise ImportError(
            'Outputs on disk need the package zarr: `pip install "jaxmbd[rollout]"`.'
        ) from error
    return zarr


def _configuration(layout: Layout, rows: int) -> dict[str, Any]:
    """The data that identify a run, and the size of its chunks."""
    outputs = {name: [str(s.dtype), *s.shape] for name, s in layout.named().items()}
    configuration = {
        "samples": layout.n,
        "values of the samples": layout.samples,
        "key": layout.key,
        "outputs": outputs,
        "verdicts": messages(),
        "samples of a chunk": rows,
    }
    return {**configuration, "checksum": _checksum(configuration)}


def _checksum(configuration: dict[str, Any]) -> str:
    """The checksum of all other entries."""
    rest = {name: value for name, value in configuration.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _template(layout: Layout, rows: int) -> tuple[dict[str, Any], Any]:
    """The files of the group with all its empty arrays, in memory, and the group."""
    zarr, files = _zarr(), {}
    attributes = {_CONFIGURATION: _configuration(layout, rows)}
    group = zarr.create_group(zarr.storage.MemoryStore(files), attributes=attributes)

    def array(name, shape, dtype, fill, **options):
        row = np.dtype(dtype).itemsize * max(1, math.prod(shape))
        chunk = rows
        while chunk > 1 and chunk * row > _CHUNK_BYTES:
            chunk //= 2
        options = {"compressors": zarr.codecs.ZstdCodec(level=0), **options}
        group.create_array(
            name,
            shape=(layout.n, *shape),
            dtype=dtype,
            chunks=(chunk, *(max(1, s) for s in shape)),
            fill_value=fill,
            **options,
        )
        return rows // chunk

    count = 0  # number of files in a chunk of samples
    for name, s in layout.named().items():
        floating = np.issubdtype(s.dtype, np.inexact)
        count += array(f"outputs/{name}", s.shape, s.dtype, np.nan if floating else 0)
    # A second copy of the configuration, in case the first one is damaged.
    count += array("status", (), "int16", -1, attributes=attributes)
    group.create_array(
        "checksums",
        shape=(math.ceil(layout.n / rows), count, _DIGEST_BYTES),
        dtype="uint8",
        chunks=(1, count, _DIGEST_BYTES),
        fill_value=0,
        compressors=None,
    )
    return files, group


def _prepare(folder: pathlib.Path, layout: Layout) -> int:
    """Write the metadata of a new run, or check and repair an interrupted run's. Returns the
    number of samples in a chunk."""
    there, rows = _existing(folder), layout.block
    if there is not None:
        rows = there["samples of a chunk"]
        _compare(folder, there, _configuration(layout, rows))
    files, _ = _template(layout, rows)
    # Where chunks are stored, the metadata were complete. Otherwise the run may have been
    # interrupted while it wrote them, that of the group first, since it identifies the run.
    complete = any((folder / "checksums").glob("c/*/0/0"))
    damaged = []
    for name in sorted(files, key=lambda name: name != "zarr.json"):
        file, data = folder / name, files[name].to_bytes()
        missing = not file.exists()
        if not missing and file.read_bytes() == data:
            continue
        if there is not None and (complete or not missing or name == "zarr.json"):
            damaged.append(name)
        write_whole(file, data)
    if damaged:
        warnings.warn(
            f"In `{folder}`, the metadata {_some(damaged)} are missing or differ from what was "
            "written: they are written again. Samples are kept if their files match the checksums.",
            stacklevel=5,
        )
    return rows


def _some(files: list[str]) -> str:
    more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
    return f"{', '.join(files[:_SHOWN])}{more}"


def _existing(folder: pathlib.Path) -> dict[str, Any] | None:
    """The configuration of the run to which a folder belongs; `None` for a new folder.

    **Raises:** `ValueError` if the folder holds something else."""
    for name in ("zarr.json", "status/zarr.json"):
        try:
            found = json.loads((folder / name).read_bytes())["attributes"][_CONFIGURATION]
            if found["checksum"] == _checksum(found):
                return found
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    new = {unfinished(folder / "zarr.json")}
    if not folder.exists() or (folder.is_dir() and set(folder.iterdir()) <= new):
        return None
    raise ValueError(
        f"`{folder}` exists already and holds something other than rollouts, or `zarr.json` and "
        "`status/zarr.json` in it are both damaged. Give another path."
    )


def _compare(folder: pathlib.Path, there: Any, here: dict[str, Any]) -> None:
    for name, value in here.items():
        if name != "checksum" and there.get(name) != value:
            shown = "" if name in ("verdicts", "values of the samples") else (
                f" ({there.get(name)} there, {value} here)"
            )  # fmt: skip
            raise ValueError(
                f"`{folder}` belongs to another run, of other {name}{shown}. Resume with the "
                "arguments that this run was started with, or give another path."
            )
