"""Compiled programs on disk."""

import collections
import dataclasses
import math
import os
import pathlib
from typing import Annotated

import jax
from jax.experimental.compilation_cache import compilation_cache as jax_cache

from ._inputs import checked, positive_or_infinite
from ._sizes import in_words

_EVENTS = "/jax/compilation_cache/"

# What this process has done, by the names of JAX's events.
_events: collections.Counter[str] = collections.Counter()


@dataclasses.dataclass(frozen=True)
class CompilationCache:
    """Where compiled programs are kept; `print` it.

    **Fields:**

    - `folder`: where. `max_bytes`: how large it may be; older programs are deleted by the next
      call of `compilation_cache`.
    - `programs`, `bytes`: how many there are now, and how large they are together.
    - `read`, `written`: how many this process took from there, and how many it added, which it had
      to compile. So `written` is 0 if nothing was compiled.
    """

    folder: pathlib.Path
    max_bytes: float | int

    @property
    def programs(self) -> int:
        return len(_files(self.folder))

    @property
    def bytes(self) -> int:
        return sum(size for _, size, _ in _files(self.folder))

    @property
    def read(self) -> int:
        return _events["cache_hits"]

    @property
    def written(self) -> int:
        return _events["cache_misses"]

    def __str__(self) -> str:
        limit = f" of at most {in_words(self.max_bytes)}" if math.isfinite(self.max_bytes) else ""
        off = "" if jax.config.jax_enable_compilation_cache else ", switched off in JAX"  # pyright: ignore
        return (
            f"{self.folder}: {self.programs} compiled programs, {in_words(self.bytes)}{limit}; "
            f"this process read {self.read} and wrote {self.written}{off}"
        )


@checked
def compilation_cache(
    folder: str | os.PathLike | None = None,
    *,
    max_bytes: Annotated[float | int, positive_or_infinite] = 2**30,
) -> CompilationCache:
    """Keep compiled programs on disk, so that another process with the same model compiles nothing.

    Once at the start of a program is enough; what JAX has compiled before stays as it is. It is
    JAX's own persistent compilation cache, for all that is compiled from now on, small programs
    as well, since a simulation comes with dozens of them. A program is found again if model, sizes,
    options of XLA, version of JAX and kind of processor are the same, whatever its numbers. Not
    kept are programs that call back into Python: those with a progress meter, with adaptive steps,
    and your own `jax.jit` around a call that raises (see `raise_if_failed`). Tracing takes its time
    in each process all the same.

    **Arguments:**

    - `folder`: where. Default: the one that JAX was given already, as by
      `JAX_COMPILATION_CACHE_DIR`, of which nothing is ever deleted; or else `jaxmbd` in
      `XDG_CACHE_HOME`, or in `~/.cache`. Programs in it are run: let nobody else write there.
    - `max_bytes`: how large it may be. If it is larger, the programs that were not used for the
      longest time are deleted now.

    **Returns:** a `CompilationCache`, which says where it is, how large, and what this process
    took from there.

    **Raises:** `ValueError` if the folder cannot be made.
    """
    given = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    own = _default_folder()
    if folder is None and given not in (None, str(own)):
        folder, max_bytes = given, math.inf
    where = pathlib.Path(own if folder is None else folder).expanduser().absolute()
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"The folder {where} for compiled programs cannot be made ({error.strerror}): give "
            "another one as `folder`."
        ) from None
    _keep_within(where, max_bytes)
    if not _events:
        _events["calls"] = 1
        jax.monitoring.register_event_listener(_count)
    jax.config.update("jax_compilation_cache_dir", str(where))
    # JAX leaves out those that compile in less than a second: nearly all of an example together.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # Otherwise the folder, or that there was none, may be remembered from what was compiled before.
    jax_cache.reset_cache()
    return CompilationCache(where, max_bytes)


def _default_folder() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "jaxmbd"


def _count(event: str, **_) -> None:
    if event.startswith(_EVENTS):
        _events[event.removeprefix(_EVENTS)] += 1


def _files(folder: pathlib.Path) -> list[tuple[float, int, pathlib.Path]]:
    """Those of programs: when they were last used, as far as the file system tells, their size, and
    their path; oldest first."""
    found = []
    for path in folder.glob("*-cache"):
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue  # another process has deleted it
        found.append((max(stat.st_atime, stat.st_mtime), stat.st_size, path))
    return sorted(found)


def _keep_within(folder: pathlib.Path, most: float | int) -> None:
    files = _files(folder)
    total = sum(size for _, size, _ in files)
    for _, size, path in files:
        if total <= most:
            return
        path.unlink(missing_ok=True)
        # Beside it, if JAX was asked to keep to a size of its own.
        path.with_name(path.name.removesuffix("cache") + "atime").unlink(missing_ok=True)
        total -= size
