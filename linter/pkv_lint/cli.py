"""`pkv-lint`: name what keeps a prefix cache from being reused."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import click

from pkv_lint.command_line import complain, run, write
from pkv_lint.findings import Finding, Severity
from pkv_lint.options import ServerOptions, server_options
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.traffic import TrafficLine

PROGRAM = "pkv-lint"
EPILOG = "Exit status: 0 nothing found, 1 findings at or above --fail-on, 2 bad usage or input."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run(command, PROGRAM, argv)


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@server_options
@click.option("--together", is_flag=True, help="Judge all files as one traffic.")
@click.option("--select", metavar="CODES", help="Only these rules (comma-separated codes or prefixes).")
@click.option("--ignore", metavar="CODES", help="Not these rules.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info", "never"]),
    default="warning",
    show_default=True,
    help="Lowest severity that makes the exit status 1.",
)
@click.option(
    "--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
@click.option(
    "--explain",
    metavar="CODE",
    is_eager=True,
    expose_value=False,
    callback=lambda *a: explain(*a),
    help="Print the documentation of a rule and exit.",
)
@click.option(
    "--list-rules",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda *a: list_rules(*a),
    help="List the rules and exit.",
)
@click.version_option(package_name="pkv-lint", prog_name="pkv-lint")
def command(
    files: tuple[str, ...],
    together: bool,
    select: str | None,
    ignore: str | None,
    fail_on: str,
    format_: str,
    server: ServerOptions,
) -> int:
    """Lint OpenAI-style requests, or traffic of them (a JSON array or JSON lines), for what breaks prefix caching.

    Without a model the built-in layout is used and figures are approximate. `-` reads standard input.
    """
    from pkv_lint.linting import Report, lint_traffic, load_rules
    from pkv_lint.prompt.traffic import read_requests

    zone, renderer = server.zone, server.renderer(PROGRAM)
    block_size = server.block_tokens(renderer)
    chosen = Choice(select, ignore)
    rules = load_rules()
    chosen.check([rule.CODE for rule in rules])
    rules = [rule for rule in rules if chosen.takes(rule.CODE)]
    failed: list[InputError] = []

    def lines_of(names: Sequence[str]) -> Iterator[TrafficLine | InputError]:
        for name in names:
            try:
                yield from read_requests(name, zone=zone)
            except InputError as error:
                if error.code:
                    yield error
                else:
                    failed.append(error)

    groups = [files] if together else [(name,) for name in files]
    reports: list[Report] = [
        lint_traffic(lines_of(group), renderer, block_size=block_size, rules=rules) for group in groups
    ]
    shown = [(report, [found for found in report.findings if chosen.takes(found.code)]) for report in reports]
    findings = [finding for _, group in shown for finding in group]
    unusable = [finding for report in reports for finding in report.unusable if not chosen.ignores(finding.code)]
    if format_ == "json":
        from pkv_lint.outputs import json as output

        write(output.dumps(reports, [*unusable, *findings]))
    else:
        from pkv_lint.outputs import text

        write(line for report, group in shown for line in text.lines(report, group))
        if findings or any(report.facts.replayed for report in reports):
            write([text.summary(reports, findings)])
        for finding in unusable:
            complain(PROGRAM, one_line(finding))
    for error in failed:
        complain(PROGRAM, error)
    if unusable or failed:
        return 2
    return int(fail_on != "never" and any(finding.at_least(cast(Severity, fail_on)) for finding in findings))


def one_line(finding: Finding) -> str:
    place = ":".join(str(part) for part in (finding.file, finding.line, finding.column) if part)
    path = f"{finding.path}: " if finding.path else ""
    return f"{place}: {finding.code} {path}{finding.message}"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which findings the user wants to see: `--select` and `--ignore`, comma-separated codes or beginnings of codes."""

    select: str | None
    ignore: str | None

    def takes(self, code: str) -> bool:
        return (self.select is None or code.startswith(prefixes(self.select))) and not self.ignores(code)

    def ignores(self, code: str) -> bool:
        """What could not be judged is not a matter of `--select`: it has to be ignored by name."""
        return code.startswith(prefixes(self.ignore or ""))

    def check(self, codes: Sequence[str]) -> None:
        """Raises a usage error for what names no code."""
        for name, text in (("--select", self.select), ("--ignore", self.ignore)):
            if text is not None and not prefixes(text):
                raise click.UsageError(f"{name} names no code")
            for prefix in prefixes(text or ""):
                if not any(code.startswith(prefix) for code in codes):
                    raise click.UsageError(f"no rule has the code {prefix} ({name}; see --list-rules)")


def prefixes(text: str) -> tuple[str, ...]:
    return tuple(part.strip().upper() for part in text.split(",") if part.strip())


def explain(context: click.Context, option: click.Parameter, code: str | None) -> None:
    if code is None or context.resilient_parsing:
        return
    from pkv_lint.linting import load_rules

    rule = next((rule for rule in load_rules() if code.upper() == rule.CODE), None)
    if rule is None:
        raise click.BadParameter(f"no rule has the code {code!r}", context, option)
    click.echo(f"{rule.CODE} {rule.NAME} ({rule.SEVERITY})\n\n{(rule.__doc__ or '').strip()}\n\n{rule.SOURCE_URL}")
    context.exit()


def list_rules(context: click.Context, option: click.Parameter, flag: bool) -> None:
    if not flag or context.resilient_parsing:
        return
    from pkv_lint.linting import load_rules

    rules = load_rules()
    columns = max((len(rule.NAME) for rule in rules), default=0)
    for rule in rules:
        summary = (rule.__doc__ or "").strip().partition("\n")[0]
        click.echo(f"{rule.CODE}  {rule.SEVERITY:<7}  {rule.NAME:<{columns}}  {summary}")
    context.exit()


if __name__ == "__main__":
    sys.exit(main())
