"""What the engine raises. Each message says what is wrong, with which value, and what to do."""


class QuireError(Exception):
    """Any error of the engine."""


class InvalidError(QuireError, ValueError):
    """Malformed input: a broken file, a bad parameter or option."""


class UnsupportedError(QuireError, NotImplementedError):
    """Valid input that needs a feature Quire does not have."""


class NotFoundError(QuireError, FileNotFoundError):
    """No such file or model."""


class ResourceError(QuireError, MemoryError):
    """Not enough memory, pages or disk space."""
