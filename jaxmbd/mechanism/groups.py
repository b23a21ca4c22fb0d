"""Which bodies hang together."""


class Groups:
    """Bodies that joints connect, grown joint by joint (union-find)."""

    def __init__(self):
        self._above: dict[str, str] = {}

    def join(self, a: str, b: str) -> bool:
        """Connects two bodies; whether they were apart, so that the joint closes no loop."""
        a, b = self._root(a), self._root(b)
        if a != b:
            self._above[b] = a
        return a != b

    def _root(self, name: str) -> str:
        while name in self._above:
            name = self._above[name]
        return name
