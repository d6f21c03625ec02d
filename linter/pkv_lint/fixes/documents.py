"""The files that are to be mended: their bytes, and edits at places of the requests in them."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO, StringIO
from itertools import accumulate

from pkv_lint.fixes.json_edits import TextEdit, applied
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.streams import GZIP, ZSTD, open_file
from pkv_lint.prompt.traffic import TrafficLine

LineEdit = tuple[TrafficLine, TextEdit]
"""An edit of the text of a line."""


@dataclass(frozen=True)
class Document:
    """The text of a file. Bytes that are not UTF-8 stay what they are (as lone surrogates, in the text)."""

    text: str
    mark: bytes = b""

    @classmethod
    def of(cls, data: bytes) -> Document:
        mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        return cls(data.removeprefix(mark).decode(errors="surrogateescape"), mark)

    @property
    def data(self) -> bytes:
        return self.mark + self.text.encode(errors="surrogateescape")

    @property
    def lines(self) -> list[str]:
        """With their ends and the mark; nothing but `\\n` ends a line."""
        return StringIO(self.mark.decode() + self.text, newline="\n").readlines()

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *accumulate(len(line) + 1 for line in self.text.split("\n"))]

    def start_of(self, line: TrafficLine) -> int:
        """Where the text of a line starts."""
        at = self._line_starts[line.line - 1] + line.column - 1
        return at + self.text.startswith("\ufeff", at)  # files that were put behind one another keep their marks

    def edited(self, edits: Iterable[LineEdit]) -> Document:
        moved = []
        for line, edit in edits:
            at = self.start_of(line)
            moved.append(TextEdit(at + edit.start, at + edit.end, edit.text))
        return Document(applied(self.text, moved), self.mark)


@dataclass
class Documents:
    """Files by the names that messages give them, read once. `stdin_name` is what standard input is called."""

    stdin_name: str
    files: dict[str, Document] = field(default_factory=dict)

    def source(self, file: str) -> BytesIO:
        """The bytes of a file (`-`: standard input) as they are now. Raises InputError for what cannot be read, or not
        be written back."""
        name = self.stdin_name if file == "-" else file
        if name not in self.files:
            data = sys.stdin.buffer.read() if file == "-" else read(file)
            if data.startswith((GZIP, ZSTD)):
                raise InputError("is compressed; fixes are made in plain files only", file=name)
            self.files[name] = Document.of(data)
        return BytesIO(self.files[name].data)

    def edited(self, edits: Iterable[LineEdit]) -> Documents:
        by_file: dict[str, list[LineEdit]] = {}
        for line, edit in edits:
            by_file.setdefault(line.file, []).append((line, edit))
        new = {name: self.files[name].edited(found) for name, found in by_file.items()}
        return Documents(self.stdin_name, {**self.files, **new})

    def changed(self, before: Documents) -> Iterator[tuple[str, Document, Document]]:
        """The files that are others than before, by name, with both versions."""
        for name, document in self.files.items():
            if document.text != before.files[name].text:
                yield name, before.files[name], document


def read(file: str) -> bytes:
    with open_file(file, file) as stream:
        try:
            return stream.read()
        except OSError as error:
            raise InputError(f"cannot be read ({(error.strerror or str(error)).lower()})", file=file) from None
