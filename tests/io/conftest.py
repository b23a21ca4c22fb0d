"""Models from texts."""

import pytest
from refusals import check_refused

import jaxmbd as mbd


@pytest.fixture
def load(tmp_path):
    """A function that loads a text."""

    def loaded(text, name="model.sdf", **options):
        path = tmp_path / name
        path.write_text(text)
        return mbd.load(path, **options)

    return loaded


@pytest.fixture
def refused(load):
    """A function that checks the words with which a text is refused."""
    return lambda text, words, **options: check_refused(lambda: load(text, **options), words)
