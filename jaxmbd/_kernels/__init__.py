"""A program of JAX as a function in C++ or CUDA that computes it for one sample.

XLA makes a kernel of each few operations, and passes what lies between them through memory. A
thread that computes a whole simulation of one sample keeps it.

- `form.py`: the intermediate form; `flatten.py` makes it from a jaxpr, with `folding.py` (what is
  known), `programs.py` (operations that are programs of others) and `keys.py` (random numbers).
- `values.py`, `emitter.py`: arrays as variables, memory or recipes. `arrays.py`, `reductions.py`,
  `places.py`, `control.py` and `operations.py` know the operations.
- `sharing.py`: threads that share a sample.
- `source.py`: the whole function of one sample.
- `batch.py`: any function as a kernel for many samples. `warp_call.py`: how NVIDIA Warp compiles
  it, and JAX calls it.
"""

from .batch import Function as Function
from .batch import lanes_for as lanes_for
from .source import Source as Source
from .source import program_source as program_source
from .unsupported import Unsupported as Unsupported
from .warp_call import has_warp as has_warp
