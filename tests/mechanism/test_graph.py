"""The graph of bodies and joints: loops, redundant rows, positions."""

import numpy as np
import pytest
from reported import four_bar

import jaxmbd as mbd
from jaxmbd._mechanism.pictures.graph import in_loops, layout

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


def test_loops():
    bars = [("a", ("ground", "1")), ("b", ("1", "2")), ("c", ("2", "ground"))]
    tail = [("d", ("2", "3"))]
    assert in_loops(bars + tail) == {"a", "b", "c"}
    assert in_loops(bars[:2] + tail) == set()
    assert in_loops([*tail, ("e", ("2", "3"))]) == {"d", "e"}
    # A coupling of three bodies that joints connect already closes loops through all of them.
    assert in_loops([*bars[:2], ("gear", ("ground", "1", "2"))]) == {"a", "b", "gear"}
    assert in_loops([("slot", ("1", "1"))]) == set()


def test_a_chain_lies_at_unit_distances():
    names = ["a", "b", "c", "d", "apart"]
    at = layout(names, [("a", "b"), ("b", "c"), ("c", "d")])
    for i, j, far in (("a", "b", 1), ("b", "c", 1), ("a", "d", 3)):
        assert np.linalg.norm(at[i] - at[j]) == pytest.approx(far, rel=0.1)
    assert np.linalg.norm(at["apart"] - at["b"]) > 1


def test_redundant_rows_are_counted_and_coloured():
    ax = mbd.plots.constraint_graph(four_bar())
    texts = {text.get_text(): text.get_color() for text in ax.texts}
    # A planar loop of four pins is redundant by three rows.
    assert texts["A: 5"] == texts["D: 5\n3 redundant"]
    assert {"crank", "coupler", "rocker", "ground"} <= set(texts)
    assert ax.get_title(loc="left") == "1 freedom, 20 rows, 3 redundant"
    plt.close("all")
