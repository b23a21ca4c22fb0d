"""The compiler in one room. Mechanics asks here for loops, for small dense algebra and for concrete
values, and knows nothing of XLA.

- `loops.py`: `each` (a loop or a batch, by device), `loop` (many equal steps, with checkpoints),
  `one_by_one` (sample by sample under `vmap`), and what the reverse pass keeps.
- `dense.py`: products, inverses and pseudoinverses of small matrices, without calls of libraries
  below a size, with the batch last, and with derivative rules of their own (`halves.py`: on GPUs).
- `barrier.py`: `materialise` and its kin, for values that are computed once and read often.
- `concrete.py`: what is known while tracing is computed in NumPy, or in one program.
- `places.py`: rows at places that only run time knows, without a scatter on CPUs; hash tables.
- `one_sided.py`: `clip`, with the derivative of one side at a limit.
- `process.py`: options of XLA, LLVM and JAX for the process, which the import sets.
"""

from . import process as process
from .barrier import MAX_REDUCED as MAX_REDUCED
from .barrier import contract as contract
from .barrier import contracted as contracted
from .barrier import largest as largest
from .barrier import materialise as materialise
from .barrier import materialise_condition as materialise_condition
from .barrier import materialise_cotangent as materialise_cotangent
from .barrier import sum_with_error as sum_with_error
from .barrier import total as total
from .concrete import all_picked as all_picked
from .concrete import any_staged as any_staged
from .concrete import array_namespace as array_namespace
from .concrete import as_one_program as as_one_program
from .concrete import broadcast as broadcast
from .concrete import compiled_quickly as compiled_quickly
from .concrete import floating_dtype as floating_dtype
from .concrete import held as held
from .concrete import is_concrete as is_concrete
from .concrete import is_known as is_known
from .concrete import is_traced as is_traced
from .concrete import need_known as need_known
from .concrete import picked as picked
from .concrete import proved as proved
from .concrete import refuted as refuted
from .concrete import reshaped as reshaped
from .concrete import set_at as set_at
from .concrete import split as split
from .concrete import stacked as stacked
from .concrete import to_jax as to_jax
from .concrete import with_strong_types as with_strong_types
from .dense import FEW as FEW
from .dense import apply as apply
from .dense import batch_last as batch_last
from .dense import general_inverse as general_inverse
from .dense import inverse as inverse
from .dense import inverse_cholesky as inverse_cholesky
from .dense import pivot_inverse as pivot_inverse
from .dense import product as product
from .dense import pseudoinverse as pseudoinverse
from .dense import root as root
from .dense import smallest as smallest
from .dense import whitener as whitener
from .loops import any_of_batch as any_of_batch
from .loops import cell as cell
from .loops import checkpointed as checkpointed
from .loops import each as each
from .loops import each_of_first as each_of_first
from .loops import entry as entry
from .loops import is_silent as is_silent
from .loops import loop as loop
from .loops import loops_cost_nothing as loops_cost_nothing
from .loops import one_by_one as one_by_one
from .loops import only_if as only_if
from .loops import replaced as replaced
from .loops import save_for_reverse as save_for_reverse
from .loops import stop_gradient as stop_gradient
from .loops import tree_where as tree_where
from .loops import with_cell as with_cell
from .loops import without_tangents as without_tangents
from .one_sided import clip as clip
from .places import chains as chains
from .places import rows_at as rows_at
from .places import sums_at as sums_at
