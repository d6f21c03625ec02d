"""`pkv-lint`: name what keeps a prefix cache from being reused."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from .findings import Finding
from .prompt.errors import InputError

EPILOG = "Exit status: 0 nothing found, 1 findings at or above --fail-on, 2 bad usage or input."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    try:
        result = command.main(args=None if argv is None else list(argv), prog_name="pkv-lint", standalone_mode=False)
        return int(result or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except click.Abort:
        return 130
    except InputError as error:
        click.echo(f"pkv-lint: {error}", err=True)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--model", metavar="ID|DIR", help="Model directory or hub id: its chat template and tokenizer are used.")
@click.option("--chat-template", metavar="FILE", help="Chat template to render with.")
@click.option("--tokenizer", metavar="FILE|DIR", help="tokenizer.json, or the directory that holds it.")
@click.option("--vllm-args", metavar="'…'", help="The `vllm serve …` line of the deployment.")
@click.option("--block-size", type=click.IntRange(1, 1_000_000), help="Tokens per KV-cache block (default 16).")
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
@click.option("--timezone", metavar="ZONE", default="UTC", show_default=True, help="Zone of Unix timestamps.")
@click.option("--offline", is_flag=True, help="Never ask the hub.")
@click.option("--explain", metavar="CODE", is_eager=True, expose_value=False, callback=lambda *a: explain(*a))
@click.option("--list-rules", is_flag=True, is_eager=True, expose_value=False, callback=lambda *a: list_rules(*a))
@click.version_option(package_name="pkv-lint", prog_name="pkv-lint")
def command(
    files: tuple[str, ...],
    model: str | None,
    chat_template: str | None,
    tokenizer: str | None,
    vllm_args: str | None,
    block_size: int | None,
    together: bool,
    select: str | None,
    ignore: str | None,
    fail_on: str,
    format_: str,
    timezone: str,
    offline: bool,
) -> int:
    """Lint OpenAI-style requests, or traffic of them (a JSON array or JSON lines), for what breaks prefix caching.

    Without a model the built-in layout is used and figures are approximate. `-` reads standard input.
    """
    from .linting import Report, lint_traffic, load_rules
    from .prompt.clock import read_timezone
    from .prompt.renderer import Renderer
    from .prompt.traffic import read_requests

    zone = read_timezone(timezone)
    renderer = Renderer.load(model, chat_template, tokenizer, vllm_args, offline=offline)
    if renderer.deployment.ignored:
        click.echo(f"pkv-lint: no influence here: {' '.join(renderer.deployment.ignored)}", err=True)
    size = block_size or renderer.deployment.block_size or 16
    rules = [rule for rule in load_rules() if wanted(rule.CODE, select, ignore)]
    reports: list[Report] = []
    failed: list[InputError] = []

    def lines_of(names: Sequence[str]):  # type: ignore[no-untyped-def]
        for name in names:
            try:
                yield from read_requests(name, zone=zone)
            except InputError as error:
                failed.append(error)

    for group in [files] if together else [(name,) for name in files]:
        reports.append(lint_traffic(lines_of(group), renderer, block_size=size, rules=rules))
    findings = [finding for report in reports for finding in report.findings]
    unusable = [finding for report in reports for finding in report.unusable]
    if format_ == "json":
        from .outputs import json as output

        click.echo(output.dumps(reports, [*unusable, *findings]), nl=False)
    else:
        from .outputs import text

        for report in reports:
            for line in text.lines(report, report.findings):
                click.echo(line)
        click.echo(text.summary(reports, findings))
    for finding in unusable if format_ == "text" else ():
        click.echo(f"pkv-lint: {one_line(finding)}", err=True)
    for error in failed:
        click.echo(f"pkv-lint: {error}", err=True)
    if unusable or failed:
        return 2
    return int(fail_on != "never" and any(finding.at_least(fail_on) for finding in findings))  # type: ignore[arg-type]


def one_line(finding: Finding) -> str:
    place = ":".join(str(part) for part in (finding.file, finding.line, finding.column) if part)
    path = f"{finding.path}: " if finding.path else ""
    return f"{place}: {finding.code} {path}{finding.message}"


def wanted(code: str, select: str | None, ignore: str | None) -> bool:
    return (select is None or code.startswith(prefixes(select))) and not (ignore and code.startswith(prefixes(ignore)))


def prefixes(text: str) -> tuple[str, ...]:
    return tuple(part.strip().upper() for part in text.split(",") if part.strip())


def explain(context: click.Context, option: click.Parameter, code: str | None) -> None:
    if code is None or context.resilient_parsing:
        return
    from .linting import load_rules

    rule = next((rule for rule in load_rules() if code.upper() == rule.CODE), None)
    if rule is None:
        raise click.BadParameter(f"no rule has the code {code!r}", context, option)
    click.echo(f"{rule.CODE} {rule.NAME} ({rule.SEVERITY})\n\n{(rule.__doc__ or '').strip()}\n\n{rule.SOURCE_URL}")
    context.exit()


def list_rules(context: click.Context, option: click.Parameter, flag: bool) -> None:
    if not flag or context.resilient_parsing:
        return
    from .linting import load_rules

    for rule in load_rules():
        summary = (rule.__doc__ or "").strip().partition("\n")[0]
        click.echo(f"{rule.CODE}  {rule.SEVERITY:<7}  {rule.NAME:<28}  {summary}")
    context.exit()


if __name__ == "__main__":
    sys.exit(main())
