"""The posterior of a pendulum's friction, by NUTS, beside the intervals of the fit.

`identify_pendulum.py` finds frequency, tilt, viscous friction and drag from a measured angle, with
intervals from a linearisation at the estimate (Laplace's approximation). Viscous friction and drag
are bound to each other, and neither can be negative: are the intervals right? The sampler NUTS of
BlackJAX (`pip install blackjax`) answers without linearisation. The standard deviation of the noise
is that of the residuals, times their inflation, since neighbours resemble each other.

    python examples/posterior_pendulum.py --data real_pend_h_1.txt
"""

import argparse
import pathlib
import sys

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from identify_pendulum import fitted, made, read

import jaxmbd as mbd
from jaxmbd import identify

# BlackJAX uses JAX when it is imported, so jaxmbd has to come first.
import blackjax  # isort: skip
from blackjax.diagnostics import effective_sample_size, potential_scale_reduction  # isort: skip

LAW = "viscous", "drag"


def sampled(density, key, chains: int = 2, warmup: int = 150, count: int = 500):
    """Samples of the entries `(chains, count, e)`, and the share of steps that diverged."""

    def chain(w, key):
        first, *keys = jax.random.split(key, count + 1)
        adaptation = blackjax.window_adaptation(blackjax.nuts, density)
        (state, found), _ = adaptation.run(first, w, num_steps=warmup)
        kernel = blackjax.nuts(density, **found)

        def one(state, key):
            state, info = kernel.step(key, state)
            return state, (density.entries(state.position), info.is_divergent)

        return jax.lax.scan(one, state, jnp.stack(keys))[1]

    begin, *keys = jax.random.split(key, chains + 1)
    starts = jax.random.normal(begin, (chains, density.size))  # w of the posterior, nearly
    # On a CPU one after the other. On a GPU `jax.vmap` is faster.
    run = jax.jit(lambda w, keys: jax.lax.map(lambda each: chain(*each), (w, keys)))
    entries, diverged = run(starts, jnp.stack(keys))
    return np.asarray(entries), float(np.mean(diverged))


def plot(found: identify.Estimate, entries: np.ndarray):
    """Samples in pairs, with the ellipse that holds 95 % by the linearisation."""
    names, flat = found.names, entries.reshape(-1, len(found.names))
    n = len(names)
    figure, axes = plt.subplots(n - 1, n - 1, figsize=(9, 9), layout="constrained", squeeze=False)
    circle = np.exp(1j * np.linspace(0, 2 * np.pi, 100))
    for i in range(1, n):
        for j in range(n - 1):
            axis = axes[i - 1, j]
            if j >= i:
                axis.remove()
                continue
            axis.plot(flat[:, j], flat[:, i], ".", ms=2, alpha=0.4)
            C = found.inflation**2 * found.covariance[np.ix_([j, i], [j, i])]
            edge = np.sqrt(5.991) * np.linalg.cholesky(C) @ np.stack([circle.real, circle.imag])
            axis.plot(*(edge + found.entries[[j, i], None]), "k", lw=0.8)
            if i == n - 1:
                axis.set_xlabel(names[j])
            if j == 0:
                axis.set_ylabel(names[i])
    figure.suptitle("dots: posterior; lines: 95 % by the linearisation of the fit")
    return figure


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/posterior_pendulum.png"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, metavar="TXT", help="measured angles")
    parser.add_argument("--output", type=pathlib.Path, default=output)
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    try:
        record = read(options.data) if options.data else made()
    except (ValueError, OSError) as error:
        sys.exit(f"{parser.prog}: {error}")
    found = fitted(record, LAW)
    print(found)
    density = identify.log_density(found, noise=found.noise * found.inflation)
    entries, diverged = sampled(density, jax.random.key(0))
    if diverged:
        print(f"NOT RELIABLE: {100 * diverged:.2g} % of the steps diverged")
    low, high = np.quantile(entries, [0.025, 0.975], axis=(0, 1))
    print(f"{'':9}  95 % of the posterior      95 % interval of the fit   effective samples, R")
    for i, (name, (a, b)) in enumerate(zip(found.names, found.interval(inflated=True))):
        one = entries[..., i]
        size, ratio = effective_sample_size(one), potential_scale_reduction(one)
        print(
            f"{name:9}  {low[i]:11.6g} ... {high[i]:.6g}  {a:11.6g} ... {b:.6g}  "
            f"{float(size):5.0f} of {one.size}, {float(ratio):.3f}"
        )
    plot(found, entries).savefig(options.output, dpi=100)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()
