"""Products of matrices in full precision.

On GPUs with matrix units JAX multiplies float32 matrices in TensorFloat-32 by default, with errors
of 3e-4. Mass matrices and constraints do not stand that. The option is one of the process: the
derivatives of a simulation are traced where its user differentiates, so a setting for the duration
of a call would miss their products.
"""

import jax


def request_full_precision() -> None:
    """Set the option for this process, unless the user has set it."""
    if jax.config.jax_default_matmul_precision is None:  # type: ignore[attr-defined]
        jax.config.update("jax_default_matmul_precision", "highest")


request_full_precision()
