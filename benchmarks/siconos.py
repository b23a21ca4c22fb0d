"""Solve the public contact problems of Siconos, and say how exactly.

Get the problems from the repository `siconos/siconos` on GitHub: they lie in the folder
`numerics/src/FrictionContact/test/data`. They come from boxes, spheres, capsules, rovers and
granular flows, in the plane and in space, many of them with more rows than there are velocities.

    python benchmarks/siconos.py FOLDER
    python benchmarks/siconos.py FOLDER --most 600 --only Rover Capsules

Files `.hdf5` need the package `h5py`. A problem has either its Delassus operator W and velocities q
without impulses, or a mass matrix M and rows H,

    u = W r + q,    or    M v = H r + f,  u = H^T v + w,    where  r in K,  u + mu |u_T| e_N in K*,
    r.(u + mu |u_T| e_N) = 0,   K = {|r_T| <= mu r_N}.

`natural map` is computed here from u, r and mu, apart from the solver: the largest entry of
(r - P(r - rho u)) / rho [m/s] with the projection P on K as in Alart and Curnier (1991), where
1 / rho of each contact is its mean mobility, the mean of the diagonal of its own block of W.

Reference: Acary, Bremond and Huber (2018), On solving contact problems with Coulomb friction:
formulations and numerical comparisons.
"""

import argparse
import os
import pathlib
import time
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sparse
from tqdm import tqdm

import jaxmbd as mbd
from jaxmbd._contact.delassus import DenseDelassus, FactoredDelassus
from jaxmbd._contact.friction import Cone
from jaxmbd._contact.problem import ContactProblem, Groups
from jaxmbd._contact.rows import DenseContactJacobian

TOLERANCE = 1e-8


class Problem(NamedTuple):
    """u = W r + q with W = Y Y^T, of which one is given; `d` impulses of each contact."""

    d: int
    mu: np.ndarray
    q: np.ndarray
    W: Any = None
    Y: Any = None

    def velocities(self, r: np.ndarray) -> np.ndarray:
        r = r.ravel()
        return (self.Y @ (self.Y.T @ r) if self.W is None else self.W @ r) + self.q


# --- files --------------------------------------------------------------------------------------


class Words:
    """The words of a text, one after another."""

    def __init__(self, text: str):
        self.words, self.at = text.split(), 0

    def left(self) -> int:
        return len(self.words) - self.at

    def numbers(self, count: int) -> np.ndarray:
        self.at += count
        return np.array(self.words[self.at - count : self.at], float)

    def integers(self, count: int) -> np.ndarray:
        return self.numbers(count).astype(int)

    def integer(self) -> int:
        return int(self.integers(1)[0])

    def matrix(self) -> Any:
        kind, rows, columns = self.integers(3)
        if kind == 0:
            self.integers(2)
            return sparse.csr_matrix(self.numbers(rows * columns).reshape(columns, rows).T)
        return self._blocks() if kind == 1 else self._entries(rows, columns)

    def _blocks(self) -> Any:
        """Blocks by rows, each by columns. Sizes are given by where blocks end."""
        count, rows, columns = self.integers(3)
        below, right = self.integers(rows), self.integers(columns)
        heights, widths = np.diff(below, prepend=0), np.diff(right, prepend=0)
        filled = self.integers(2)
        starts, place = self.integers(filled[0]), self.integers(filled[1])[:count]
        whole = sparse.lil_matrix((below[-1], right[-1]))
        for i in range(rows):
            for j in place[starts[i] : starts[i + 1]]:
                self.integer()
                block = self.numbers(heights[i] * widths[j]).reshape(widths[j], heights[i]).T
                top, left = below[i] - heights[i], right[j] - widths[j]
                whole[top : below[i], left : right[j]] = block
        return whole.tocsr()

    def _entries(self, rows: int, columns: int) -> Any:
        """What CSparse prints: "i j : x", or "col j : locations .. to .." and then "i : x"."""
        self.integer()
        while self.words[self.at] != "nnz:":
            self.at += 1
        count = int(self.words[self.at + 1].strip(","))
        self.at += 2
        if self.words[self.at] == "1-norm:":
            self.at += 2
        found, column = [], None
        while len(found) < count:
            here = self.words[self.at : self.at + 4]
            if here[0] == "col":
                column, self.at = int(here[1]), self.at + 7
            elif column is None:
                found.append((int(here[0]), int(here[1]), float(here[3])))
                self.at += 4
            else:
                found.append((int(here[0]), column, float(here[2])))
                self.at += 3
        i, j, x = zip(*found, strict=True) if found else ([], [], [])
        return sparse.csr_matrix((x, (i, j)), shape=(rows, columns))


def from_text(path: pathlib.Path) -> Problem:
    words = Words(path.read_text())
    d, contacts = words.integers(2)
    first = words.matrix()
    if words.left() > first.shape[0] + contacts + 1:
        H = words.matrix()
        f, w = words.numbers(H.shape[0]), words.numbers(H.shape[1])
        return from_masses(int(d), words.numbers(contacts), first, H, f, w)
    q = words.numbers(first.shape[0])
    return Problem(int(d), words.numbers(contacts), q, W=first)


def from_hdf5(path: pathlib.Path) -> Problem:
    import h5py

    def matrix(group):
        """Triplets, or rows or columns one after another, as `nz` says."""
        shape = int(group["m"][0]), int(group["n"][0])
        kinds = {-1: sparse.csc_matrix, -2: sparse.csr_matrix}
        kind = int(group["nz"][0])
        i, p, x = (group[name][:] for name in "ipx")
        return kinds[kind]((x, i, p), shape) if kind < 0 else sparse.csr_matrix((x, (i, p)), shape)

    with h5py.File(path) as file:
        (name,) = (name for name in file if name.startswith("fclib"))
        group: Any = file[name]
        d, vectors = int(group["spacedim"][0]), group["vectors"]
        if "W" in group:
            return Problem(d, vectors["mu"][:], vectors["q"][:], W=matrix(group["W"]))
        both = matrix(group["M"]), matrix(group["H"])
        return from_masses(d, vectors["mu"][:], *both, vectors["f"][:], vectors["w"][:])


def from_masses(d: int, mu: np.ndarray, M, H, f: np.ndarray, w: np.ndarray) -> Problem:
    """With M = L L^T, Y = H^T L^-T, without the velocities that touch nothing."""
    diagonal = M.diagonal()
    if (M - sparse.diags(diagonal)).count_nonzero():
        L = np.linalg.cholesky(M.toarray())
        Y = np.linalg.solve(L, H.toarray()).T
        free = np.linalg.solve(L, f)
    else:
        Y = (sparse.diags(diagonal**-0.5) @ H).T.tocsc()
        used = np.diff(Y.indptr) > 0
        Y, free = Y[:, used].toarray(), (diagonal**-0.5 * f)[used]
    return Problem(d, mu, Y @ free + w, Y=Y)


# --- solutions ----------------------------------------------------------------------------------


def contact_problem(problem: Problem) -> ContactProblem:
    """By factors where there are fewer velocities than rows."""
    d, contacts = problem.d, len(problem.mu)
    shape = contacts, d
    if problem.Y is not None and problem.Y.shape[1] < problem.Y.shape[0]:
        Y = DenseContactJacobian(jnp.asarray(problem.Y.reshape(*shape, -1)))
        S = FactoredDelassus(Y, jnp.zeros((contacts, d, d)))
    else:
        W = problem.W.toarray() if problem.Y is None else problem.Y @ problem.Y.T
        S = DenseDelassus(jnp.asarray(W.reshape(*shape, *shape)))
    groups = Groups((d - 1,), (Cone(),))
    mu = jnp.asarray(problem.mu[:, None])
    return ContactProblem.scaled(S, jnp.asarray(problem.q.reshape(shape)), mu, groups, None)


def solved(problem: ContactProblem):
    found = mbd.solvers.InteriorPoint().solve(problem, jnp.zeros_like(problem.b))
    return found.impulses * problem.scale[:, None], found.iterations, found.accepted


def natural_map(problem: Problem, r: np.ndarray) -> float:
    u = problem.velocities(r).reshape(r.shape)
    W = problem.W.diagonal() if problem.Y is None else np.sum(problem.Y**2, axis=1)
    mobility = W.reshape(r.shape).mean(axis=1)
    mobility = np.where(mobility > 0, mobility, 1.0)[:, None]
    y = r - u / mobility
    n = np.maximum(y[:, :1], 0.0)
    reach, size = problem.mu[:, None] * n, np.linalg.norm(y[:, 1:], axis=1, keepdims=True)
    t = y[:, 1:] * np.minimum(1.0, reach / np.where(size > 0, size, 1.0))
    return float(np.max(np.abs(r - np.concatenate([n, t], axis=1)) * mobility))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--most", type=int, default=600, help="contacts; larger ones are left out")
    parser.add_argument("--only", nargs="*", default=[], help="files with one of these in a name")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"{'problem':42} contacts  iterations  compiled [s]  time [ms]  natural map [m/s]")
    good = count = 0
    left: list[str] = []
    for path in tqdm(sorted(options.folder.iterdir())):
        if options.only and not any(part in path.name for part in options.only):
            continue
        try:
            problem = (from_hdf5 if path.suffix == ".hdf5" else from_text)(path)
        except (ImportError, ValueError, IndexError) as error:
            left.append(f"{path.name}: cannot be read ({error})")
            continue
        contacts = len(problem.mu)
        if contacts > options.most or not contacts:
            left.append(f"{path.name}: {contacts or 'no'} contacts")
            continue
        given = contact_problem(problem)
        begin = time.perf_counter()
        run = jax.jit(solved).lower(given).compile()
        compiling, begin = time.perf_counter() - begin, time.process_time()
        r, iterations, accepted = jax.block_until_ready(run(given))
        took = time.process_time() - begin
        residual = natural_map(problem, np.asarray(r))
        good, count = good + (residual < TOLERANCE), count + 1
        tqdm.write(
            f"{path.name:42} {contacts:8d}  {int(iterations):10d}  {compiling:12.1f}"
            f"  {1e3 * took:9.2f}  {residual:.1e}{'' if accepted else ', not accepted'}"
        )
    print(f"{good} of {count} problems below {TOLERANCE:.0e} m/s")
    print("\n".join(f"left out: {line}" for line in left))


if __name__ == "__main__":
    main()
