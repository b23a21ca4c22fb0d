"""Puts MathJax into the site, so that formulas need no other host. It comes from the package
django-static-mathjax (the extra `docs`), of which no part needs Django."""

import importlib.util
import pathlib

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

# The component in docs/javascripts and mkdocs.yml, and what it loads when a page needs it.
WANTED = (
    "es5/tex-chtml.js",
    "es5/input/tex/extensions/*.js",
    "es5/output/chtml/fonts/woff-v2/*.woff",
    "LICENSE",
)


def on_files(files, config):
    spec = importlib.util.find_spec("mathjax")
    if spec is None or not spec.submodule_search_locations:
        raise PluginError('MathJax is not installed: pip install ".[docs]"')
    folder = pathlib.Path(spec.submodule_search_locations[0]) / "static/mathjax"
    for pattern in WANTED:
        found = sorted(folder.glob(pattern))
        if not found:
            raise PluginError(f"The installed MathJax has no {pattern} in {folder}.")
        for path in found:
            place = f"javascripts/mathjax/{path.relative_to(folder).as_posix()}"
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files
