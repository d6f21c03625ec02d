"""A chat request as vLLM prepares it for rendering: what the template gets, and how the text becomes ids."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.tools import known_tools
from pkv_lint.prompt.validation import refused

UNSET = (None, "auto")
"""Values that count as not given when template arguments are merged (`renderers/params.py:merge_kwargs`)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many tokens a prompt may have and which of them are kept (`renderers/params.py:TokenizeParams`)."""

    max_model_len: int | None
    truncate_prompt_tokens: int | None
    truncation_side: str | None
    add_special_tokens: bool

    @property
    def keep(self) -> int | None:
        """How many tokens truncation keeps; None for all."""
        if self.truncate_prompt_tokens is None or self.truncate_prompt_tokens >= 0:
            return self.truncate_prompt_tokens
        return None if self.max_model_len is None else max(0, self.max_model_len - 1)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What one validated body asks for.

    `messages` are validated but not yet in the template's content format, `template_kwargs` hold the template's
    variables beside the messages (`tools` among them), `chat_template` is the request's own template or its name.
    """

    messages: list[dict[str, Any]]
    template_kwargs: dict[str, Any]
    chat_template: str | None
    limits: Limits

    @classmethod
    def of(cls, body: Mapping[str, Any], deployment: Deployment) -> ChatRequest:
        """From a body that `validation.validated` accepted. Raises RenderError where this server would refuse it."""
        check_tool_choice(body, deployment)
        kwargs = body.get("chat_template_kwargs") or {}
        if not deployment.trust_request_chat_template and (
            body.get("chat_template") is not None or kwargs.get("chat_template") is not None
        ):
            raise RenderError(
                "Chat template is passed with request, but --trust-request-chat-template is not set. "
                "Refused request with untrusted chat template.",
                path="chat_template",
            )
        check_media_options(body, deployment)
        variables = template_kwargs(body, deployment)
        asked = limits(body, deployment)
        if variables.get("tokenize"):
            # Then transformers makes the ids at once, and it adds none to what a template printed.
            asked = replace(asked, add_special_tokens=False)
        return cls(
            messages=body["messages"],
            template_kwargs=variables,
            chat_template=body.get("chat_template"),
            limits=asked,
        )


def check_model(body: Mapping[str, Any], deployment: Deployment) -> None:
    """Raises RenderError (404) for a name that the server does not serve."""
    if not deployment.serves(body.get("model")):
        aliases = ", ".join(deployment.served_model_names or ())
        raise RenderError(
            f"The model `{body['model']}` does not exist. Valid aliases: {aliases}.", path="model", status=404
        )


def check_tool_choice(body: Mapping[str, Any], deployment: Deployment) -> None:
    # vLLM takes a tool call parser only together with the flag (`ParserManager.get_tool_parser`).
    choice = body.get("tool_choice", "none")
    if choice in (None, "none") or (deployment.tool_parser and deployment.enable_auto_tool_choice):
        return
    if choice == "auto":
        wanted = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    else:
        name = f'function "{choice["function"]["name"]}"' if isinstance(choice, dict) else f'"{choice}"'
        wanted = f"tool_choice={name} requires --tool-call-parser to be set"
    raise RenderError(wanted, path="tool_choice" if "tool_choice" in body else "tools")


def check_media_options(body: Mapping[str, Any], deployment: Deployment) -> None:
    for name, what in (
        ("mm_processor_kwargs", "multimodal preprocessing"),
        ("media_io_kwargs", "multimodal media loading"),
    ):
        if body.get(name) and not deployment.trust_request_mm_kwargs:
            raise refused(
                f"Per-request {name} are disabled by default because they can change {what} resource usage. Start the "
                "server with --trust-request-mm-kwargs only when clients are trusted.",
                name,
            )


def template_kwargs(body: Mapping[str, Any], deployment: Deployment) -> dict[str, Any]:
    """The template's variables: the server's defaults, then `chat_template_kwargs`, then the fields of the request."""
    tools = body.get("tools")
    if tools is not None:
        excluded = body.get("tool_choice") == "none" and deployment.exclude_tools_when_tool_choice_none
        tools = None if excluded else known_tools(tools)
    given = body.get("chat_template_kwargs") or {}
    fields = {
        "add_generation_prompt": body.get("add_generation_prompt", True),
        "continue_final_message": body.get("continue_final_message", False),
        "documents": body.get("documents"),
    }
    effort = body.get("reasoning_effort")
    if effort is not None:
        effort = deployment.reasoning_effort_map.get(effort, effort)
        fields["reasoning_effort"] = effort
        if "enable_thinking" not in given:
            fields["enable_thinking"] = effort != "none"
    # What the server was started with stands as it is, None and "auto" too (`resolve_default_chat_template_kwargs`).
    defaults = {"cohere_format": deployment.cohere_format, **deployment.default_chat_template_kwargs}
    return merged(merged(defaults, {"tools": tools}), merged(given, fields))


def merged(defaults: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {**defaults, **{name: value for name, value in overrides.items() if value not in UNSET}}


def limits(body: Mapping[str, Any], deployment: Deployment, *, strict: bool = True) -> Limits:
    """`strict` is off for gpt-oss, where vLLM checks neither length nor truncation."""
    if not strict:
        return Limits(None, None, None, False)
    most = deployment.max_model_len
    name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    asked = body.get(name) or 0
    keep = body.get("truncate_prompt_tokens")
    if most is not None and asked > most:
        raise refused(
            f"{name}={asked} cannot be greater than max_model_len={most}. Please request fewer output tokens.",
            name,
            asked,
        )
    if most is not None and keep is not None and keep > most:
        raise refused(
            f"truncate_prompt_tokens={keep} cannot be greater than max_model_len = {most}. "
            "Please request a smaller truncation size.",
            "truncate_prompt_tokens",
            keep,
        )
    return Limits(most, keep, body.get("truncation_side"), body.get("add_special_tokens", False))


def forwarded_ids(body: Mapping[str, Any]) -> array[int] | None:
    """Ids that replace the whole prompt (`kv_transfer_params`, used between prefill and decode servers)."""
    parameters = body.get("kv_transfer_params")
    ids = parameters.get("prompt_token_ids") if isinstance(parameters, dict) else None
    if ids is None or body.get("echo") or any(has_media(message) for message in body["messages"]):
        return None
    if not isinstance(ids, list) or not ids or any(type(i) is not int or not 0 <= i < 2**31 for i in ids):
        raise RenderError(
            "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers. "
            "(parameter=kv_transfer_params.prompt_token_ids)",
            path="kv_transfer_params.prompt_token_ids",
        )
    return array("i", ids)


def has_media(message: Mapping[str, Any]) -> bool:
    from pkv_lint.prompt.messages import MEDIA_PARTS, TEXT_PARTS

    content = message.get("content")
    media = {*MEDIA_PARTS, "prompt_embeds"}
    return isinstance(content, list) and any(
        isinstance(part, dict)
        and (part.get("type", "text") not in (*TEXT_PARTS, "tool_reference") or not media.isdisjoint(part))
        for part in content
    )
