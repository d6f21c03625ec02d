"""Typed access to the members of one JSON object of a request, with the leniency of the server's validator."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pkv_lint.prompt.errors import RenderError

_TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})
_FALSE = frozenset({"0", "off", "f", "false", "n", "no"})


@dataclass(frozen=True, slots=True)
class Fields:
    """The members of one object. A member that is null counts as absent; values come back as the same Python objects.

    Every method raises RenderError, with the JSON path of the member, for a value that pydantic's lax mode refuses.
    """

    values: Mapping[str, Any]
    path: str = ""

    @classmethod
    def of(cls, value: Any, path: str) -> Fields:
        if not isinstance(value, Mapping):
            raise RenderError("must be an object", path=path or None)
        return cls(value, path)

    def at(self, key: str) -> str:
        """The JSON path of a member."""
        return f"{self.path}.{key}" if self.path else key

    def string(self, key: str) -> str:
        value = self.optional_string(key)
        if value is None:
            raise RenderError("a string is required", path=self.at(key))
        return value

    def optional_string(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise RenderError("must be a string", path=self.at(key))
        return value

    def object(self, key: str) -> Mapping[str, Any]:
        value = self.optional_object(key)
        if value is None:
            raise RenderError("an object is required", path=self.at(key))
        return value

    def optional_object(self, key: str) -> Mapping[str, Any] | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise RenderError("must be an object", path=self.at(key))
        return value

    def optional_list(self, key: str) -> list[Any] | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            raise RenderError("must be a list", path=self.at(key))
        return value

    def choice(self, key: str, choices: Collection[str]) -> str:
        value = self.optional_choice(key, choices)
        if value is None:
            raise RenderError(f"must be one of {', '.join(choices)}", path=self.at(key))
        return value

    def optional_choice(self, key: str, choices: Collection[str]) -> str | None:
        value = self.values.get(key)
        if value is not None and (not isinstance(value, str) or value not in choices):
            raise RenderError(f"must be one of {', '.join(choices)}", path=self.at(key))
        return value

    def integer(self, key: str) -> int:
        value = self.optional_integer(key)
        if value is None:
            raise RenderError("an integer is required", path=self.at(key))
        return value

    def optional_integer(self, key: str) -> int | None:
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, (bool, int)):
            return int(value)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, str) and len(value) < 40 and value.strip().lstrip("+-").isdecimal():
            return int(value)
        raise RenderError("must be an integer", path=self.at(key))

    def optional_boolean(self, key: str) -> bool | None:
        value = self.values.get(key)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)) and value in (0, 1):
            return bool(value)
        if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
            return value.lower() in _TRUE
        raise RenderError("must be a boolean", path=self.at(key))
