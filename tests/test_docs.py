"""Every Python block of the README and of the documentation runs, page by page, as a reader would.

A block that cannot run here follows a line `<!-- not run: reason -->`.
"""

import pathlib
import re
import sys
import types

import helpers
import jax
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Those whose blocks build many mechanisms, or long derivatives.
LONG = [
    f"docs/{page}.md"
    for page in (
        "api/mechanism",
        "constraints",
        "contact",
        "differentiating",
        "identification",
        "joints",
        "reports",
        "rollouts",
        "trajectory-optimisation",
    )
]
BLOCK = re.compile(
    r"(?P<skip>^<!-- not run: \S.* -->\n+)?^```python[^\n]*\n(?P<code>.*?)^```",
    re.DOTALL | re.MULTILINE,
)


def blocks(page):
    """(line, code) of each block that is meant to run."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start("code")), match["code"])
        for match in BLOCK.finditer(text)
        if not match["skip"]
    ]


def name(page):
    return str(page.relative_to(ROOT))


@pytest.fixture
def quick_compilation():
    """Nearly all of the time here is compilation of programs that run once."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.parametrize(
    "page",
    helpers.slow_unless(lambda page: name(page) not in LONG, filter(blocks, PAGES)),
    ids=name,
)
@pytest.mark.usefixtures("quick_compilation")
def test_blocks_run(page, monkeypatch):
    # A module of its own, so that classes defined on the page know where they come from.
    module = types.ModuleType(re.sub(r"\W", "_", name(page)))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for line, code in blocks(page):
        # Empty lines in front, so that a traceback shows the line in the page.
        exec(compile("\n" * line + code, str(page), "exec"), module.__dict__)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_found(page):
    """Indented blocks would be passed over in silence."""
    text = page.read_text(encoding="utf-8")
    assert text.count("```python") == len(BLOCK.findall(text))
