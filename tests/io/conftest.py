"""Models from texts."""

import pytest


@pytest.fixture
def load(tmp_path):
    """A function that loads a text."""
    import jaxmbd as mbd

    def loaded(text, name="model.sdf", **options):
        path = tmp_path / name
        path.write_text(text)
        return mbd.load(path, **options)

    return loaded


@pytest.fixture
def refused(load):
    """A function that checks the words with which a text is refused."""
    from refusals import check_refused

    return lambda text, words, **options: check_refused(lambda: load(text, **options), words)
