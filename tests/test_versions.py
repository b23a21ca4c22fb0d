"""Versions: our own is stated once, and those of others are the ones that are tested."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from pages import ROOT

import jaxmbd as mbd


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


PROJECT = tomllib.loads(text("pyproject.toml"))["project"]
# What developers install; users install the others.
FOR_DEVELOPERS = {"browser", "dev", "docs", "test-models"}


def lower_bounds():
    """name -> version, of all dependencies of users."""
    extras = PROJECT["optional-dependencies"].items()
    lines = [x for name, extra in extras if name not in FOR_DEVELOPERS for x in extra]
    needed = map(Requirement, PROJECT["dependencies"] + lines)
    found = {x.name: x.specifier for x in needed if x.name != "jaxmbd"}
    return {
        name: part.version for name, parts in found.items() for part in parts if ">=" in str(part)
    }


def test_lower_bounds_are_tested():
    """`.ci/run` runs the tests of `test_promised.py` with the versions of this file."""
    lines, bounds = text("tests/oldest.txt").split(), lower_bounds()
    assert lines == sorted(f"{name}=={version}" for name, version in bounds.items())
    # The documentation names all that users install themselves; the others come along.
    page = text("docs/versions.md").lower()
    missing = {name for name, version in bounds.items() if f"{name} | {version}" not in page}
    assert missing == {"click", "msgspec", "tqdm", "trimesh", "zstandard"}


def test_every_version_is_that_of_the_project():
    version = PROJECT["version"]
    if mbd.__version__ == "unknown":
        pytest.skip("jaxmbd is not installed, so it has no version")
    assert mbd.__version__ == version
    assert re.search(r"^version: (.*)$", text("CITATION.cff"), re.MULTILINE)[1] == version
    assert re.search(r"^## \[(.*)\]", text("CHANGELOG.md"), re.MULTILINE)[1] == version
