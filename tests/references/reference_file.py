"""How the scripts beside this file write what they found."""

import json
import pathlib
import re
import sys

import numpy as np


def write(found, name, *codes):
    """Write `found` to the file `name`, with the versions of the codes used. Lists of numbers stand
    in one line."""
    versions = {"python": sys.version.split()[0], "numpy": np.__version__} | dict(codes)
    text = json.dumps({"versions": versions} | found, default=_plain, indent=1)
    text = re.sub(r"\[[-+.,eE\d\s]*\]", lambda row: " ".join(row[0].split()), text)
    pathlib.Path(__file__).with_name(name).write_text(text + "\n")


def eigenvalues(s):
    """In the order of their sizes, of two conjugates the one above the real axis first."""
    s = s[np.lexsort((-s.imag, np.abs(s).round(9)))]
    return {"real": s.real, "imag": s.imag}


def _plain(x):
    return x.tolist() if isinstance(x, np.ndarray) else x.item()
