"""What the compiler does not know."""


class Unsupported(Exception):
    """A program holds an operation or a type of numbers that kernels do not know. The message names
    it."""
