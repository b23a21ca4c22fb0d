"""A program of JAX as a function in C++ or CUDA that computes it for one sample.

XLA makes a kernel of each few operations, and passes what lies between them through memory. A
thread that computes a whole simulation of one sample keeps it.

- `form.py`: the intermediate form; `flatten.py` makes it from a jaxpr, with `folding.py` (what is
  known) and `keys.py` (random numbers).
- `values.py`, `emitter.py`: arrays as variables, memory or recipes. `arrays.py`, `reductions.py`,
  `places.py`, `control.py` and `operations.py` know the operations.
- `source.py`: the whole function.
"""

from .source import Source as Source
from .source import program_source as program_source
from .unsupported import Unsupported as Unsupported
