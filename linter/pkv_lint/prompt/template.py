"""Finding a model's chat template: in a file, in a model directory, by hub id."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

from pkv_lint.prompt.errors import InputError, RenderError

NO_TEMPLATE = (
    "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the "
    "tokenizer does not define one."
)
TEMPLATE_FILES = ("chat_template.jinja", "additional_chat_templates/*.jinja")
MODEL_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.json",
)
HUB_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class ChatTemplates:
    """The templates a server can choose from.

    `stated` is the one of `--chat-template`, `processor` the multimodal processor's, `tokenizer` the tokenizer's: one
    template, or several by name. `files` says of templates that are files which.
    """

    stated: str | None = None
    processor: str | None = None
    tokenizer: str | Mapping[str, str] | None = None
    files: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def sources(self) -> list[str]:
        """The templates that requests without one of their own can get, with tools and without."""
        chosen: list[str] = []
        for tools in (False, True):
            try:
                chosen.append(self.choose(None, tools=tools))
            except RenderError:
                continue
        return chosen

    def choose(self, asked: str | None, *, tools: bool) -> str:
        """The template for a request that brings `asked` (a template or its name) and tools or none
        (`renderers/hf.py:resolve_chat_template`). Raises RenderError where there is none."""
        if asked is None:
            asked = self.stated
        if asked is None and not tools and self.processor is not None:
            return self.processor
        if isinstance(self.tokenizer, str) or self.tokenizer is None:
            chosen = asked if asked is not None else self.tokenizer
        elif asked is not None:
            chosen = self.tokenizer.get(asked, asked)
        else:
            chosen = (self.tokenizer.get("tool_use") if tools else None) or self.tokenizer.get("default")
        if chosen is None:
            raise RenderError(NO_TEMPLATE)
        return chosen


def stated_template(text: str) -> str:
    """What `--chat-template` names: a file, or the template itself (vLLM's `_load_chat_template`)."""
    try:
        mode = os.stat(text).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            # Opening a pipe that nobody writes to would wait for ever, a device may never end.
            raise InputError("cannot read the chat template: is not a regular file", file=text)
        return Path(text).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError("the chat template is not UTF-8 text", file=text) from None
    except (OSError, ValueError) as error:
        if any(character in text for character in "{}\n"):
            return text
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"cannot read the chat template: {reason or error}", file=text) from None


def directory_templates(directory: Path) -> ChatTemplates:
    """The templates that transformers finds in a model directory."""
    named: dict[str, str] = {}
    config = read_object(directory / "tokenizer_config.json")
    given = config.get("chat_template")
    if isinstance(given, str):
        named["default"] = given
    elif isinstance(given, list):
        named |= {
            entry["name"]: entry["template"]
            for entry in given
            if isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("template"), str)
        }
    files: dict[str, str] = {}
    file = directory / "chat_template.jinja"
    if file.is_file():
        # A template in a file of its own wins over what tokenizer_config.json says.
        others = sorted((directory / "additional_chat_templates").glob("*.jinja"))
        named = {name: stated_template(str(path)) for name, path in [("default", file), *((o.stem, o) for o in others)]}
        files = {named[path.stem]: str(path) for path in others} | {named["default"]: str(file)}
    processor = read_object(directory / "chat_template.json").get("chat_template")
    return ChatTemplates(
        processor=processor if isinstance(processor, str) else None,
        tokenizer=named["default"] if named.keys() == {"default"} else named or None,
        files=files,
    )


def read_object(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"not JSON that can be read: {' '.join(str(error).split())}", file=str(file)) from None
    return value if isinstance(value, dict) else {}


def model_directory(model: str, *, offline: bool = False, revision: str | None = None) -> Path:
    """The directory of a model named by path or by hub id: files that are here already, else one quick try at the hub.

    Raises InputError naming the model when neither has it.
    """
    # Not Path's own: they raise for names that are too long, and for homes of nobody.
    path = Path(os.path.expanduser(model))
    if os.path.isdir(path):
        return path
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1 or os.path.exists(path):
        raise InputError("no such model directory", file=model)
    return hub_directory(model, offline=offline, revision=revision)


def hub_directory(model: str, *, offline: bool, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    wanted = [*MODEL_FILES, *TEMPLATE_FILES]
    try:
        directory = Path(snapshot_download(model, revision=revision, allow_patterns=wanted, local_files_only=True))
        if (directory / "tokenizer.json").is_file():
            return directory
    except HFValidationError:
        raise InputError("not a model directory, and not a hub id", file=model) from None
    except Exception:  # not cached; the library has a class of its own for each reason
        directory = None
    if offline:
        raise InputError("not in the local hub cache (and --offline was given)", file=model)
    return download(model, wanted, revision)


def download(model: str, wanted: list[str], revision: str | None) -> Path:
    """What the hub has, where it answers soon: huggingface_hub's own retries take over 20 s without a network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import ENDPOINT

    unreachable = no_answer(f"{ENDPOINT}/{model}/resolve/{revision or 'main'}/config.json")
    if unreachable is not None:
        raise InputError(f"not in the local hub cache, and the hub cannot be reached ({unreachable})", file=model)
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=wanted, etag_timeout=HUB_SECONDS))
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"cannot be had from the hub: {reason}", file=model) from None


def no_answer(url: str) -> str | None:
    """Why a server does not send a small file soon; None where it does, or says that there is none.

    The whole of it, because one that only drips would keep huggingface_hub waiting; how long a large file takes is then
    a matter of its size. In a thread, because looking up a name takes as long as it takes: no limit of ours reaches it.
    """
    import httpx

    reasons: list[str | None] = []

    def ask() -> None:
        try:
            httpx.get(url, timeout=HUB_SECONDS, follow_redirects=True)
            reasons.append(None)
        except (httpx.HTTPError, OSError) as error:
            reasons.append(" ".join(str(error).split()) or type(error).__name__)

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(HUB_SECONDS)
    return reasons[0] if reasons else f"no answer in {HUB_SECONDS:.0f} s"
