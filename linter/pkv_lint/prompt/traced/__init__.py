"""Following text from a request through a chat template: what the rest of the package needs of it."""

from pkv_lint.prompt.traced.json import parse_traced_json
from pkv_lint.prompt.traced.strings import Traced, origins, trace
from pkv_lint.prompt.traced.values import join, retrace, trace_value

__all__ = ["Traced", "join", "origins", "parse_traced_json", "retrace", "trace", "trace_value"]
