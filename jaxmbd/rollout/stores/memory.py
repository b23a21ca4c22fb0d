"""Outputs in memory."""

import itertools

import jax
import numpy as np

from ..._sizes import check_fits, host_bytes
from ..processes import gathered
from .base import AbstractRecord, AbstractStore, Layout


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
