"""Models from the packages of the extra `test-models`; nothing of them is copied. The accelerations
of all of them are in the table that `benchmarks/imports.py` writes."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import jaxmbd as mbd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]


def folder_of(package, *below):
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"needs {package}, of the extra `test-models`")
    return Path(spec.origin).parent.joinpath(*below)


def test_the_control_suite_loads():
    """All of it but `lqr`, which has no body that moves before Python adds some."""
    mujoco = pytest.importorskip("mujoco")
    names = sorted(folder_of("dm_control", "suite").glob("*.xml"))
    assert len(names) > 15
    for path in names:
        m = mujoco.MjModel.from_xml_path(str(path))
        if not m.njnt:
            continue
        loaded = mbd.load(path, contacts=False)
        assert loaded.sizes == (m.nq, m.nv)
        bodies = [m.body(b).name for b in range(m.nbody) if m.body_jntnum[b]]
        named = [name for name in bodies if name]
        assert set(named) <= set(loaded.mechanism.body_stack.names)
        masses = sum(float(body.inertia.mass) for body in loaded.mechanism.bodies)
        moving = [b for b in range(m.nbody) if m.body_weldid[b]]
        np.testing.assert_allclose(masses, m.body_mass[moving].sum(), rtol=1e-12)


def test_cassie_has_its_loops():
    share = folder_of("mujoco").parent / "cmeel.prefix" / "share" / "example-robot-data"
    path = share / "robots" / "cassie_description" / "robots" / "cassie_v2.sdf"
    if not path.exists():
        pytest.skip("needs example-robot-data, of the extra `test-models`")
    loaded = mbd.load(path, limits=False)
    mechanism = loaded.mechanism
    assert len(mechanism.body_stack) == 23 and len(mechanism.joints) == 26
    assert np.abs(mechanism.constraint(loaded.state.q, 0.0)).max() < 1e-14
    # 6 of the pelvis; of each leg 11 in the tree, less 3 for each of two ball joints, of which one
    # row is redundant, since its loop is planar.
    assert mbd.reports.mobility(mechanism).freedoms == 6 + 2 * (11 - 3 - 2)
