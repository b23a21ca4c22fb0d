"""Files that are there whole or not at all, whenever the writing is interrupted."""

import os
import pathlib


def write_whole(path: pathlib.Path, data: bytes) -> None:
    """Under another name, synced to the disk, and then renamed; so is the folder that names it."""
    _make_folder(path.parent)
    with unfinished(path).open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished(path).replace(path)
    _sync(path.parent)


def unfinished(path: pathlib.Path) -> pathlib.Path:
    """The name of a file that is still written: always the same, so that none is left over."""
    return path.with_name(path.name + ".part")


def _make_folder(folder: pathlib.Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(folder: pathlib.Path) -> None:
    if os.name == "nt":
        return  # Windows has no such thing
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
