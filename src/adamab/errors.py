"""Every error that ADAMAB raises on purpose, in one tree.

    AdamabError
    ├── TaskError                 the task file, its examples, a data file
    │   └── ImageError            a picture that cannot be read, or is refused
    ├── RecipeError               a hyperparameter out of range, an unknown preset
    ├── MissingExtraError         an optional package is not installed; names its pip line
    ├── ProviderError
    │   ├── EmbedderError         an embedder cannot be found, read or trusted
    │   │   └── FingerprintError  a model meets another embedder than it was fitted with
    │   ├── GeneratorError        a generator cannot be found or read
    │   ├── ApiError              an API refuses, fails or cannot be reached
    │   ├── BudgetError           a call would exceed the budget, so it was not made
    │   ├── StoppedError          somebody asked to stop, so a call was not made
    │   └── CacheError            the vector cache is unreadable or unwritable
    ├── ModelFileError            a saved classifier is damaged, foreign or of another version
    └── RunError                  a run directory cannot be used as asked

Each message is one line: what is wrong, where, and what to do. The command line
prints it and exits with code 2; a traceback is a bug.
"""


class AdamabError(Exception):
    """Base of all errors that a user can cause and mend."""


class TaskError(AdamabError, ValueError):
    """The task, its examples or a data file is malformed."""


class ImageError(TaskError):
    """A picture is broken, too large, or no picture; the message names its file."""


class RecipeError(AdamabError, ValueError):
    """A recipe's value is out of range or its preset unknown."""


class MissingExtraError(AdamabError, ImportError):
    """An optional dependency is missing."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed; run: pip install 'adamab[{extra}]'")
        self.what = what
        self.extra = extra

    def __reduce__(self) -> tuple[type["MissingExtraError"], tuple[str, str]]:
        # BaseException pickles by `args`, which hold the finished message; worker
        # processes need the two words it was made from.
        return type(self), (self.what, self.extra)


class ProviderError(AdamabError):
    """Something outside this package failed or cannot be used."""


class EmbedderError(ProviderError):
    """An embedder cannot be found, read or trusted."""


class FingerprintError(EmbedderError):
    """A model was fitted with another embedder."""


class GeneratorError(ProviderError):
    """A generator cannot be found or read."""


class ApiError(ProviderError):
    """An API refused a request, failed, or cannot be reached.

    The message names the service, the status and what to do; it never quotes a request or a response.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        too_large: bool = False,
        refused: bool = False,
        unsupported: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.too_large = too_large  # the request has more items or tokens than the service takes
        self.refused = refused  # on grounds of content
        self.unsupported = unsupported  # the service does not know a parameter of the request

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args, self.__dict__


class BudgetError(ProviderError):
    """A call would exceed the budget; it was not made."""


class StoppedError(ProviderError):
    """Somebody asked to stop; the next call was not made."""


class CacheError(ProviderError):
    """The vector cache cannot be read or written."""


class ModelFileError(AdamabError, ValueError):
    """A saved classifier is damaged, foreign or of another version."""


class RunError(AdamabError):
    """A run directory cannot be used as asked."""
