"""What a project states once: `[tool.pkv]` in pyproject.toml, or pkv.toml."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pkv_lint.findings import SEVERITIES, Severity
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.source import format_path

FORMATS = ("text", "concise", "json", "sarif", "github", "html")
FAIL_ON = (*SEVERITIES, "never")
OWN_FILE, PROJECT_FILE = "pkv.toml", "pyproject.toml"

Read = Callable[[Any, Path], Any]
"""Makes a value of a TOML value; relative paths in it are meant from a folder. Raises ValueError with what it needs."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """`file` is the configuration file as messages name it (None: there is none), `options` holds values by the names
    of command-line parameters, `models` model directories or hub ids by the names that requests use, `severities` by
    codes or beginnings of codes."""

    file: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    severities: Mapping[str, Severity] = field(default_factory=dict)

    def named(self, key: str) -> str:
        """How messages call a key: its file and its name."""
        return f"{self.file}: {key_path(self.file or '', key)}"


def find_configuration(folder: Path) -> Configuration:
    """The configuration of the nearest folder that has one, from `folder` upwards. In one folder pkv.toml wins; a
    pyproject.toml without `[tool.pkv]` is passed over. Raises InputError for one that cannot be used."""
    for place in (folder, *folder.parents):
        for name in (OWN_FILE, PROJECT_FILE):
            file = place / name
            if file.is_file():
                found = read_configuration(file, required=name == OWN_FILE)
                if found is not None:
                    return found
    return Configuration()


def read_configuration(file: Path, *, required: bool = True) -> Configuration | None:
    """The configuration that a file holds; None where it may do without one and does. Raises InputError that names the
    file and the key."""
    name = shown(file)
    table = read_table(file, name, required=required)
    if table is None:
        return None
    folder = Path(os.path.relpath(file.parent))
    values: dict[str, Any] = {}
    for key, value in table.items():
        path = key_path(name, key)
        if key not in KEYS:
            raise InputError(f"is no setting of pkv; {hint(key)}", file=name, path=path)
        try:
            values[key] = KEYS[key](value, folder)
        except ValueError as error:
            raise InputError(str(error), file=name, path=path) from None
    models, severities = values.pop("models", {}), values.pop("severity", {})
    return Configuration(name, {PARAMETERS[key]: value for key, value in values.items()}, models, severities)


def hint(key: str) -> str:
    """What may have been meant by a key that does not exist."""
    from difflib import get_close_matches

    if key == "tool":
        return f"settings stand at the top here, [tool.pkv] is for {PROJECT_FILE}"
    near = get_close_matches(key.lower().replace("_", "-"), KEYS, 1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(KEYS)}"


def shown(file: Path) -> str:
    """A path as messages name it: relative where it is in the working directory."""
    relative = os.path.relpath(file)
    return os.fspath(file.absolute()) if relative.startswith(os.pardir) else relative


def read_table(file: Path, name: str, *, required: bool) -> Mapping[str, Any] | None:
    """`[tool.pkv]` of a pyproject.toml, the whole of any other file; None where it is not there and not required."""
    try:
        text = file.read_bytes().decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", file=name) from None
    except OSError as error:
        raise InputError(f"cannot be read: {(error.strerror or str(error)).lower()}", file=name) from None
    if not required and "pkv" not in text:
        return None  # most projects: do not import a parser to learn that
    import tomllib

    try:
        table: Any = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"is not valid TOML: {str(error)[:1].lower()}{str(error)[1:]}", file=name) from None
    if file.name != PROJECT_FILE:
        return cast("Mapping[str, Any]", table)
    for step in ("tool", "pkv"):
        table = table.get(step) if isinstance(table, dict) else None
    if table is None and required:
        raise InputError("has no [tool.pkv]", file=name)
    if table is not None and not isinstance(table, dict):
        raise InputError("needs a table", file=name, path="tool.pkv")
    return table


def key_path(file: str, key: str) -> str:
    parts = [key] if Path(file).name != PROJECT_FILE else ["tool", "pkv", key]
    # Dashes need no quotes in TOML.
    return ".".join(part if part.replace("-", "").isalnum() else format_path([part]) for part in parts)


def text(value: Any, folder: Path) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"needs a string that is not empty, not {kind(value)}")
    return value


def flag(value: Any, folder: Path) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"needs true or false, not {kind(value)}")
    return value


def block_size(value: Any, folder: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1_000_000:
        raise ValueError(f"needs a whole number from 1 to 1000000, not {kind(value)}")
    return value


def one_of(*known: str) -> Read:
    def read(value: Any, folder: Path) -> str:
        if value not in known or not isinstance(value, str):
            raise ValueError(f"needs one of {', '.join(known)}, not {kind(value)}")
        return value

    return read


def timezone(value: Any, folder: Path) -> str:
    from pkv_lint.prompt.clock import read_timezone

    try:
        read_timezone(text(value, folder))
    except InputError as error:
        raise ValueError(error.message) from None
    return text(value, folder)


def codes(value: Any, folder: Path) -> str:
    """Codes as the command line takes them."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list):
        raise ValueError(f"needs a list of codes, not {kind(value)}")
    for code in given:
        if not isinstance(code, str) or not code:
            raise ValueError(f'needs codes such as "PKV101", not {kind(code)}')
    return ",".join(given)


def ignored(value: Any, folder: Path) -> str | None:
    """An empty list ignores nothing."""
    return None if value == [] else codes(value, folder)


def path(value: Any, folder: Path) -> str:
    return os.path.normpath(folder / Path(text(value, folder)).expanduser())


def template(value: Any, folder: Path) -> str:
    """A file, or the template itself, as in `--chat-template`."""
    given = text(value, folder)
    return given if any(character in given for character in "{}\n") else path(given, folder)


def model(value: Any, folder: Path) -> str:
    """A directory or file that is there, else a hub id. What starts with a dot is a path in any case."""
    given = path(value, folder)
    if value.startswith(".") or os.path.exists(given):
        # A bare name could be read as a hub id again.
        return given if os.path.isabs(given) or given.startswith(".") else os.path.join(os.curdir, given)
    return cast("str", value)


def models(value: Any, folder: Path) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"needs a table of model names, not {kind(value)}")
    return {name: member(name, given, model, folder) for name, given in value.items()}


def severities(value: Any, folder: Path) -> Mapping[str, Severity]:
    if not isinstance(value, dict):
        raise ValueError(f"needs a table of codes, not {kind(value)}")
    return {code.upper(): member(code, given, one_of(*SEVERITIES), folder) for code, given in value.items()}


def member(name: str, value: Any, read: Read, folder: Path) -> Any:
    try:
        return read(value, folder)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def kind(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value[:60]}"'
    if isinstance(value, bool):
        return str(value).lower()
    names: dict[type, str] = {int: "a number", float: "a number", list: "a list", dict: "a table"}
    return str(value) if isinstance(value, int) and abs(value) < 10**9 else names.get(type(value), "a date or time")


KEYS: Mapping[str, Read] = {
    "model": model,
    "chat-template": template,
    "tokenizer": model,
    "vllm-args": text,
    "block-size": block_size,
    "timezone": timezone,
    "offline": flag,
    "models": models,
    "select": codes,
    "ignore": ignored,
    "severity": severities,
    "fail-on": one_of(*FAIL_ON),
    "baseline": path,
    "format": one_of(*FORMATS),
    "together": flag,
}
PARAMETERS: Mapping[str, str] = {key: key.replace("-", "_") for key in KEYS} | {"format": "output_format"}
"""The command-line parameter of each setting. Other commands have formats of their own: theirs has another name."""
