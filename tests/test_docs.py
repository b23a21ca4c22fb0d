"""Every Python block of the README and of the documentation runs, page by page, as a reader would.

A block that cannot run here follows a line `<!-- not run: reason -->`.
"""

import pathlib
import re

import jax
import pytest
from pages import BLOCK, PAGES, blocks, name, run

README = PAGES[0]


@pytest.fixture
def quick_compilation():
    """Nearly all of the time here is compilation of programs that run once."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def runs_here(page):
    """`test_extending.py` runs the programs of that page, each alone."""
    return blocks(page) and name(page) != "docs/extending.md" and page != README


@pytest.mark.promised
@pytest.mark.usefixtures("quick_compilation")
def test_blocks_of_the_readme_run(monkeypatch):
    run(README, blocks(README), name(README), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("page", filter(runs_here, PAGES), ids=name)
@pytest.mark.usefixtures("quick_compilation")
def test_blocks_run(page, monkeypatch):
    run(page, blocks(page), name(page), monkeypatch)


def test_pages_can_be_read():
    """No page is long, and no line of its programs has to be scrolled. Every block is found: an
    indented one would be passed over in silence."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.count("```python") == len(BLOCK.findall(text)), name(page)
        assert text.count("\n") <= 300, name(page)
        for match in BLOCK.finditer(text):
            assert max(map(len, match["code"].splitlines())) <= 88, name(page)


def test_tests_named_in_pages_exist():
    files = list(pathlib.Path(__file__).parent.rglob("test_*.py"))
    there = {name for f in files for name in re.findall(r"\bdef (test_\w+)", f.read_text("utf-8"))}
    there |= {f.stem for f in files}
    named = {x for page in PAGES for x in re.findall(r"`(test_\w+)", page.read_text("utf-8"))}
    assert named and named <= there
