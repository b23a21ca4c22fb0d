"""Versions: our own is stated once, and those of others are the ones that are tested."""

import pathlib
import re
import tomllib

import pytest
from packaging.requirements import Requirement

import jaxmbd as mbd

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# What developers install; users install the others.
FOR_DEVELOPERS = {"browser", "dev", "docs", "test-models"}


def lower_bounds():
    """name -> version, of all dependencies of users."""
    extras = PROJECT["optional-dependencies"].items()
    texts = PROJECT["dependencies"] + [
        text for name, extra in extras if name not in FOR_DEVELOPERS for text in extra
    ]
    found = {}
    for requirement in map(Requirement, texts):
        if requirement.name != "jaxmbd":
            (found[requirement.name],) = (
                part.version for part in requirement.specifier if part.operator == ">="
            )
    return found


def test_lower_bounds_are_tested():
    """`.ci/run` runs the tests of `test_promised.py` with the versions of this file."""
    lines = (ROOT / "tests" / "oldest.txt").read_text(encoding="utf-8").split()
    assert dict(line.split("==") for line in lines) == lower_bounds()
    assert lines == sorted(lines)


def test_documentation_names_the_lower_bounds():
    """All that users install themselves; the others come along."""
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8").lower()
    missing = {
        name for name, version in lower_bounds().items() if f"{name} | {version}" not in page
    }
    assert missing == {"click", "msgspec", "tqdm", "zstandard"}


def test_every_version_is_that_of_the_project():
    version = PROJECT["version"]
    if mbd.__version__ == "unknown":
        pytest.skip("jaxmbd is not installed, so it has no version")
    assert mbd.__version__ == version
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == version
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## \[(.*)\]", changes, re.MULTILINE)[1] == version
