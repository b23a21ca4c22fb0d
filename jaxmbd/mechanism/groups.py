"""Which bodies are connected."""


class Groups:
    """Connected groups of bodies, grown joint by joint (union-find)."""

    def __init__(self):
        self._above: dict[str, str] = {}

    def join(self, a: str, b: str) -> bool:
        """Connect two bodies. Return whether they were apart, so that this closes no loop."""
        a, b = self._root(a), self._root(b)
        if a != b:
            self._above[b] = a
        return a != b

    def _root(self, name: str) -> str:
        while name in self._above:
            name = self._above[name]
        return name
