"""Timing profiles as files.

    {"version": 1, "kind": "fitted", "model": "Qwen/Qwen3-8B", "device": "1 x H100-SXM",
     "coefficients": {"step": s, "prefill_token": s, "attention_pair": s, "decode_sequence": s, "decode_context": s},
     "intake": {"request": s, "prompt_token": s},
     "valid": {"prefill_token": [1, 8192], ...}, "residuals": {"points": n, "median": share, "largest": share}}

Coefficients are in seconds; what a unit is says `StepLoad`. `intake`, `valid` and `residuals` may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.source import decode, parse
from pkv_lint.prompt.streams import open_file
from pkv_sim.timing.timing_profile import Coefficients, Intake, Kind, Range, Residuals, StepLoad, TimingProfile

VERSION = 1
MOST = 1e15
"""Numbers are below, so that sums of their products stay finite."""
KINDS: tuple[Kind, ...] = ("fitted", "roofline")


def load_timing(file: str) -> TimingProfile:
    """Raises InputError, with the path in the file, for anything that is no timing profile."""
    with open_file(file, file) as stream:
        data = stream.read()
    try:
        return timing_from_json(parse(decode(data, file), file))
    except InputError as error:
        raise InputError(error.message, file=file, line=error.line, column=error.column, path=error.path) from None


def timing_from_json(value: Any) -> TimingProfile:
    """The profile of a parsed file. Raises InputError."""
    if not isinstance(value, Mapping):
        raise InputError("a timing profile is a JSON object")
    if value.get("version") != VERSION:
        raise InputError(f"is not {VERSION}, which is all that is known", path="version")
    kind = next((known for known in KINDS if value.get("kind") == known), None)
    if kind is None:
        raise InputError(f"must be one of {', '.join(KINDS)}", path="kind")
    given = _object(value, "coefficients")
    if unknown := sorted(set(given) - set(Coefficients._fields)):
        raise InputError(
            f"is no coefficient (known are {', '.join(Coefficients._fields)})", path=f"coefficients.{unknown[0]}"
        )
    return TimingProfile(
        kind,
        _text(value, "model"),
        _text(value, "device"),
        Coefficients(**{name: _number(given, name, "coefficients.") for name in Coefficients._fields}),
        _ranges(_object(value, "valid")) if "valid" in value else {},
        _residuals(_object(value, "residuals")) if value.get("residuals") is not None else None,
        _intake(_object(value, "intake")) if value.get("intake") is not None else Intake(),
    )


def timing_to_json(profile: TimingProfile) -> dict[str, Any]:
    """What `load_timing` reads."""
    found: dict[str, Any] = {
        "version": VERSION,
        "kind": profile.kind,
        "model": profile.model,
        "device": profile.device,
        "coefficients": profile.coefficients._asdict(),
    }
    if any(profile.intake):
        found["intake"] = profile.intake._asdict()
    if profile.valid:
        found["valid"] = {name: list(valid) for name, valid in profile.valid.items()}
    if profile.residuals is not None:
        residuals = profile.residuals
        found["residuals"] = {"points": residuals.points, "median": residuals.median, "largest": residuals.largest}
    return found


def _ranges(value: Mapping[str, Any]) -> dict[str, Range]:
    found = {}
    for name, limits in value.items():
        path = f"valid.{name}"
        if name not in StepLoad._fields:
            raise InputError(f"is no load of a step (known are {', '.join(StepLoad._fields)})", path=path)
        if (
            not isinstance(limits, list)
            or len(limits) != 2
            or not all(map(_is_number, limits))
            or limits[0] > limits[1]
        ):
            raise InputError("needs two numbers, the smaller one first", path=path)
        found[name] = Range(*limits)
    return found


def _residuals(value: Mapping[str, Any]) -> Residuals:
    points = _number(value, "points", "residuals.")
    return Residuals(int(points), _number(value, "median", "residuals."), _number(value, "largest", "residuals."))


def _intake(value: Mapping[str, Any]) -> Intake:
    return Intake(*(_number(value, name, "intake.") for name in Intake._fields))


def _object(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if not isinstance(value.get(name), Mapping):
        raise InputError("needs a JSON object", path=name)
    found: Mapping[str, Any] = value[name]
    return found


def _text(value: Mapping[str, Any], name: str) -> str:
    if not isinstance(value.get(name), str):
        raise InputError("needs text", path=name)
    return str(value[name])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST


def _number(value: Mapping[str, Any], name: str, prefix: str) -> float:
    number = value.get(name)
    if not _is_number(number):
        raise InputError(f"needs a number from 0 to {MOST:g}", path=prefix + name)
    return float(number)  # type: ignore[arg-type]
