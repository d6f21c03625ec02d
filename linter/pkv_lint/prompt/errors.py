"""What can go wrong with an input, as one clear line each."""

from __future__ import annotations


class PkvError(Exception):
    """Something the user can act on. `str(error)` is one line without a traceback."""


class InputError(PkvError):
    """A file, a line of traffic or a command-line value that cannot be used.

    `file` is the name as the user gave it, `line` and `column` are 1-based, `path` is a JSON path such as
    `messages[0].content`; each is None where it is not known. `code` is PKV901 for text that is not JSON and PKV902 for
    JSON that is not a request.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        path: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line
        self.column = column
        self.path = path
        self.code = code

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        text = f"{self.path}: {self.message}" if self.path else self.message
        return f"{place}: {text}" if place else text


class RenderError(PkvError):
    """A request that the server would refuse.

    `status` is the HTTP status it would answer with, `path` the place to blame in the request as a JSON path (None when
    the whole request is meant), `from_template` whether the chat template itself refused (or failed on) it rather than
    the request validation, `template_line` where the template does not parse (from 1; None where it does).
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        status: int = 400,
        from_template: bool = False,
        template_line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.status = status
        self.from_template = from_template
        self.template_line = template_line

    def __str__(self) -> str:
        text = " ".join(self.message.split())
        return f"{self.path}: {text}" if self.path else text
