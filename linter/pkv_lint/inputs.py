"""From what stands on the command line to the files that are read: folders and patterns taken apart."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pkv_lint.prompt.errors import InputError

PACKED = (".gz", ".zst")
ENDINGS = tuple(f"{ending}{packed}" for ending in (".json", ".jsonl", ".ndjson") for packed in ("", *PACKED))
"""Names of files that are looked into in a folder."""
MEMBERS: Mapping[str, tuple[type, ...]] = {
    "messages": (list,),
    "prompt": (str, list),
    "input": (str, list),
    "request": (dict,),
    "body": (dict,),
    "token_ids": (list,),
}
"""A request, or a line that holds one, has one of these members."""
LOOKS_CUT_OFF = re.compile(rb'"(?:messages|token_ids)"\s*:\s*\[')
HEAD_BYTES = 64 * 1024


def files_of(names: Sequence[str]) -> Iterator[str | InputError]:
    """The files that the names mean, each once and in the order of the names: a file itself (`-` is stdin), of a folder
    the files in it that hold requests, and what a pattern such as `logs/**/*.jsonl` fits. In folders and patterns, what
    is hidden is passed over. What means nothing, or cannot be looked into, comes as an InputError."""
    seen: set[str] = set()
    for name in names:
        found: list[str] | InputError = [name]
        if name != "-" and os.path.isdir(name):
            unread: list[OSError] = []
            found = sorted(requests_below(name, unread.append))
            for error in unread:
                yield InputError(f"cannot be read ({(error.strerror or str(error)).lower()})", file=error.filename)
            if not (found or unread):
                endings = ", ".join(ENDINGS[::3])
                found = InputError(f"is a directory without requests ({endings}; packed with .gz or .zst)", file=name)
        elif name != "-" and not os.path.lexists(name) and glob.has_magic(name):
            matches = sorted(filter(os.path.isfile, glob.iglob(name, recursive=True)))
            found = matches or InputError("no file fits this pattern", file=name)
        if isinstance(found, InputError):
            yield found
            continue
        for file in found:
            same = file if file == "-" else os.path.realpath(file)
            if same not in seen:
                seen.add(same)
                yield file


def requests_below(folder: str, unread: Callable[[OSError], None]) -> Iterator[str]:
    """Files at any depth whose name and first value say that they hold requests. `unread` is told of folders that
    cannot be read."""
    for place, folders, files in os.walk(folder, onerror=unread):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in files:
            file = os.path.join(place, name)
            hidden = name.startswith(".")
            if not hidden and name.endswith(ENDINGS) and os.path.isfile(file) and holds_requests(file):
                yield file


def holds_requests(file: str) -> bool:
    """Whether the first value of a file is a request, a line of traffic, or a list of those. Where it is not JSON, what
    it starts with decides, so that a request that is cut off is reported and a settings file with comments is not."""
    from pkv_lint.prompt.json_values import read_values
    from pkv_lint.prompt.streams import plain_stream

    try:
        with plain_stream(file, file) as stream:
            first = next(read_values(stream, file), None)
        if first is not None and not isinstance(first, InputError):
            return is_request(first.value)
        with plain_stream(file, file) as stream:
            return LOOKS_CUT_OFF.search(stream.read(HEAD_BYTES)) is not None
    except InputError:
        return True  # cannot be read: to be reported


def is_request(value: Any) -> bool:
    return isinstance(value, dict) and any(isinstance(value.get(name), types) for name, types in MEMBERS.items())
