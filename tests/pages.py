"""Python blocks of the README and of the documentation, as modules."""

import pathlib
import re
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?P<skip>^<!-- not run: \S[^\n]* -->\n+)?^```python[^\n]*\n(?P<code>.*?)^```",
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


def run(page, which, label, monkeypatch):
    """A module in which these blocks of the page have run."""
    # Classes defined on the page know where they come from.
    module = types.ModuleType(re.sub(r"\W", "_", label))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for line, code in which:
        # Empty lines in front, so that a traceback shows the line in the page.
        exec(compile("\n" * line + code, str(page), "exec"), module.__dict__)
    return module
