"""Atomic writing: after an interruption a file is complete or absent."""

import os
import pathlib


def write_whole(path: pathlib.Path, data: bytes) -> None:
    """Write `data` to a temporary name, sync it to the disk, and rename it. The folder is synced
    too."""
    _make_folder(path.parent)
    with unfinished(path).open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished(path).replace(path)
    _sync(path.parent)


def unfinished(path: pathlib.Path) -> pathlib.Path:
    """The temporary name of a file that is being written. It is always the same, so that the next
    attempt overwrites it and no such file is left over."""
    return path.with_name(path.name + ".part")


def _make_folder(folder: pathlib.Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(folder: pathlib.Path) -> None:
    if os.name == "nt":
        return  # Windows cannot sync a folder
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
