"""Makes the 3D page that the gallery embeds: the ring of six links of `examples/six_r_loop.py`, by
`mbd.view`. It is made once by each process, and needs the extra `view`."""

import functools
import pathlib
import sys
import tempfile

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]


@functools.cache
def page():
    sys.path.insert(0, str(ROOT / "examples"))
    import jax
    import matplotlib

    matplotlib.use("Agg")
    import six_r_loop

    import jaxmbd as mbd

    jax.config.update("jax_enable_x64", True)
    mechanism, solution, _ = six_r_loop.run(6.0)
    view = mbd.view(mechanism, solution, fps=30, title="A ring of six links", trails=["link 3"])
    with tempfile.TemporaryDirectory() as folder:
        return view.save(pathlib.Path(folder) / "ring.html").read_text(encoding="utf-8")


def on_files(files, config):
    files.append(File.generated(config, "motions/ring.html", content=page()))
    return files
