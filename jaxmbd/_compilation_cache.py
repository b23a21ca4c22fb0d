"""The cache of compiled programs on disk."""

import collections
import dataclasses
import math
import os
import pathlib
from typing import Annotated

import jax
from jax.experimental.compilation_cache import compilation_cache as jax_cache

from ._inputs import checked, positive_or_infinite
from ._sizes import format_bytes

_EVENTS = "/jax/compilation_cache/"

# Counts of this process, by the names of JAX's events.
_events: collections.Counter[str] = collections.Counter()


@dataclasses.dataclass(frozen=True)
class CompilationCache:
    """The folder of compiled programs and its statistics; `print` it.

    **Fields:**

    - `folder`: its path. `max_bytes`: its largest size. The next call of `compilation_cache`
      deletes the least recently used programs beyond it.
    - `programs`, `bytes`: the number of programs in the folder now, and their total size.
    - `read`, `written`: the number of programs that this process read from the folder, and the
      number that it compiled and added. So `written` is 0 if nothing was compiled.
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
        limit = (
            f" of at most {format_bytes(self.max_bytes)}" if math.isfinite(self.max_bytes) else ""
        )
        off = "" if jax.config.jax_enable_compilation_cache else ", switched off in JAX"  # pyright: ignore[reportAttributeAccessIssue]
        return (
            f"{self.folder}: {self.programs} compiled programs, {format_bytes(self.bytes)}{limit}; "
            f"this process read {self.read} and wrote {self.written}{off}"
        )


@checked
def compilation_cache(
    folder: str | os.PathLike | None = None,
    *,
    max_bytes: Annotated[float | int, positive_or_infinite] = 2**30,
) -> CompilationCache:
    """Keep compiled programs on disk, so that another process with the same model compiles nothing.

    Call it once at the start of a program. Programs that JAX compiled before the call are not
    stored.

    It sets up JAX's own persistent compilation cache for everything that is compiled from now on,
    small programs included, since one simulation needs dozens of them. JAX finds a program again if
    the model, the sizes, the XLA options, the version of JAX and the kind of processor are the
    same; the numbers may differ. JAX does not store programs that call back into Python: those with
    a progress meter, those with adaptive steps, and your own `jax.jit` around a call that raises
    (see `raise_if_failed`). Each process still has to trace.

    **Arguments:**

    - `folder`: its path. Default: the folder that JAX already has, for instance from
      `JAX_COMPILATION_CACHE_DIR`; nothing in it is ever deleted. Without one, `jaxmbd` in
      `XDG_CACHE_HOME` or in `~/.cache`. Programs in the folder are executed, so nobody else should
      be able to write to it.
    - `max_bytes`: its largest size. If the folder is larger, the least recently used programs are
      deleted now.

    **Returns:** a `CompilationCache` with the path, the size, and the number of programs read and
    written.

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
    # By default JAX leaves out programs that compile in less than a second, which are nearly all
    # programs of an example.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # JAX may have cached the old folder, or its absence, when it compiled earlier programs.
    jax_cache.reset_cache()
    return CompilationCache(where, max_bytes)


def _default_folder() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "jaxmbd"


def _count(event: str, **_) -> None:
    if event.startswith(_EVENTS):
        _events[event.removeprefix(_EVENTS)] += 1


def _files(folder: pathlib.Path) -> list[tuple[float, int, pathlib.Path]]:
    """The files of programs, oldest first: the time of last use (as far as the file system records
    it), the size and the path."""
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
        # JAX writes this file beside the program if it limits the size of the cache itself.
        path.with_name(path.name.removesuffix("cache") + "atime").unlink(missing_ok=True)
        total -= size
