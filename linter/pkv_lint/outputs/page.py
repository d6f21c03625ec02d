"""Reports as self-contained pages of one look: it stands in `page.html.jinja`, which their templates extend.

    {% extends "page.html.jinja" %}
    {% block title %}pkv-verify: {{ file }}{% endblock %}
    {% block style %}.missed { --colour: var(--lost); }{% endblock %}
    {% block body %}<h1>{{ rate|percent }} ...</h1>{% endblock %}

Values are escaped. What comes out of traffic must also go through `pkv_lint.columns.visible`: characters that turn text
around or that a browser drops are not for the reader's eyes to find.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from dataclasses import dataclass
from importlib.resources import files

FOLDER = "pkv_lint.outputs"
TIPS = "tips.js"


@dataclass(frozen=True, slots=True)
class Script:
    """The one script that a page may run, and the digest by which its Content-Security-Policy allows that one alone."""

    source: str

    @property
    def digest(self) -> str:
        return f"sha256-{b64encode(hashlib.sha256(self.source.encode()).digest()).decode()}"


def render(package: str, name: str, values: dict[str, object], *, tips: bool = False) -> str:
    """The template `name` in the folder of a `package`, as one HTML document. It may import other templates from there.

    With `tips` the page shows at once what stands in a `title` under the pointer, and in a `.tour` on the arrow keys
    (see tips.js). Without, it has no script at all. Filters: `number` (1,234), `percent` (12%) and jinja's own.
    """
    from jinja2 import ChoiceLoader, Environment, FunctionLoader

    def from_folder(folder: str) -> FunctionLoader:
        def source(wanted: str) -> str | None:
            file = files(folder).joinpath(wanted)
            return file.read_text(encoding="utf-8") if file.is_file() else None

        return FunctionLoader(source)

    environment = Environment(
        loader=ChoiceLoader([from_folder(package), from_folder(FOLDER)]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": "{:,}".format, "percent": "{:.0%}".format}
    script = Script(files(FOLDER).joinpath(TIPS).read_text(encoding="utf-8")) if tips else None
    return environment.get_template(name).render(values, script=script)
