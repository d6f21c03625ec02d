"""`pkv-lint`: name what keeps a prefix cache from being reused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from pkv_lint.command_line import complain, run, write
from pkv_lint.configuration import FAIL_ON, FORMATS
from pkv_lint.findings import Severity, counted
from pkv_lint.options import ServerOptions, configuration_of, server_options
from pkv_lint.output_file import check_writable, write_file

if TYPE_CHECKING:
    from pkv_lint.baseline import Baseline
    from pkv_lint.batch import Batch
    from pkv_lint.choice import Choice
    from pkv_lint.prompt.streams import Source
    from pkv_lint.rule_api import Rule

PROGRAM = "pkv-lint"
EPILOG = "Exit status: 0 nothing found, 1 findings at or above --fail-on, 2 bad usage or input."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run(command, PROGRAM, argv)


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@server_options
@click.option("--together", is_flag=True, help="Judge all files as one traffic.")
@click.option("--stdin-filename", metavar="NAME", help="What messages call standard input.")
@click.option("--select", metavar="CODES", help="Only these rules (comma-separated codes or beginnings of codes).")
@click.option("--ignore", metavar="CODES", help="Not these rules.")
@click.option(
    "--fail-on",
    type=click.Choice(FAIL_ON),
    default="warning",
    show_default=True,
    help="Lowest severity that makes the exit status 1.",
)
@click.option("--diff", is_flag=True, help="Show what --fix would change instead of the findings.")
@click.option("--fix", is_flag=True, help="Make the fixes that raise reuse, in the files themselves.")
@click.option("--unsafe-fixes", is_flag=True, help="With --diff or --fix: also those that change what the model reads.")
@click.option("--baseline", metavar="FILE", help="Show only what this file of known findings does not allow.")
@click.option("--update-baseline", is_flag=True, help="Write the findings of the files into the baseline, and exit.")
@click.option(
    "--format", "output_format", type=click.Choice(FORMATS), default="text", show_default=True, help="Output format."
)
@click.option("--statistics", is_flag=True, help="Show how many findings each rule has instead of the findings.")
@click.option("--output", metavar="FILE", help="Write to this file instead of standard output.")
@click.option(
    "--explain",
    metavar="CODE",
    is_eager=True,
    expose_value=False,
    callback=lambda *a: explain(*a),
    help="Print the page of a rule, by its code or name, and exit.",
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
    stdin_filename: str | None,
    select: str | None,
    ignore: str | None,
    fail_on: str,
    diff: bool,
    fix: bool,
    unsafe_fixes: bool,
    baseline: str | None,
    update_baseline: bool,
    output_format: str,
    statistics: bool,
    output: str | None,
    server: ServerOptions,
) -> int:
    """Lint OpenAI-style requests, or traffic of them (a JSON array or JSON lines), for what breaks prefix caching.

    FILE may be a folder or a pattern; `-` reads standard input. Without a model the built-in layout is used and figures
    are approximate.
    """
    if update_baseline and baseline is None:
        raise click.UsageError("--update-baseline needs --baseline FILE")
    if diff + fix + update_baseline > 1:
        raise click.UsageError("only one of --diff, --fix and --update-baseline can be done at a time")
    for given, does in ((diff, "--diff prints a patch"), (update_baseline, "--update-baseline prints no findings")):
        if given and (statistics or output is not None):
            raise click.UsageError(f"{does}: there is nothing for --statistics or --output")
    if unsafe_fixes and not (diff or fix):
        raise click.UsageError("--unsafe-fixes needs --diff or --fix")
    if statistics and output_format not in ("text", "concise"):
        raise click.UsageError(f"--statistics is not there in the format {output_format}")
    if output is not None:
        check_writable(output)
    from pkv_lint.batch import STDIN, lint_files
    from pkv_lint.linting import load_rules
    from pkv_lint.outputs import lines

    rules = load_rules()
    chosen = choice(select, ignore, rules)
    known = None if baseline is None else known_findings(baseline, update=update_baseline)
    stdin_name = stdin_filename or STDIN
    lint = partial(
        lint_files,
        files,
        [rule for rule in rules if chosen.takes(rule.CODE)],
        server.renderer_of_lines(PROGRAM),
        server.block_tokens,
        zone=server.zone,
        now=datetime.now(),
        together=together,
        stdin_name=stdin_name,
    )

    def judge(source: Callable[[str], Source] | None = None) -> Batch:
        batch = lint(source=source)
        return replace(batch, reports=tuple(map(chosen.of, batch.reports)))

    if diff:
        from pkv_lint.fixes.command import show

        batch, found = show(PROGRAM, judge, stdin_name, unsafe=unsafe_fixes)
        complain_of(batch, named=True)
        return 2 if batch.incomplete else int(found)
    if fix:
        from pkv_lint.fixes.command import make

        batch = make(PROGRAM, judge, stdin_name, unsafe=unsafe_fixes, reads_stdin="-" in files)
    else:
        batch = judge()
    if known is not None and update_baseline:
        return rewrite(known, batch, chosen)
    if known is not None:
        batch = without(known, batch, chosen)
    options: dict[str, Any] = {}
    if output_format == "text" and not (statistics or fix):
        from pkv_lint.fixes.hints import fix_options

        options["fix_options"] = list(map(fix_options, batch.reports))
    text = lines("statistics" if statistics else output_format, batch.reports, **options)
    if fix and "-" in files and output is None:
        pass  # what was read is on stdout now, mended
    elif output is None:
        write(text)
    else:
        write_file(output, (f"{click.unstyle(line)}\n" for line in text))
    complain_of(batch, named=output_format == "text")
    if batch.incomplete:
        return 2
    findings = (finding for report in batch.reports for finding in report.findings)
    return int(fail_on != "never" and any(finding.at_least(cast(Severity, fail_on)) for finding in findings))


def choice(select: str | None, ignore: str | None, rules: Sequence[Rule]) -> Choice:
    """What the options and the configuration choose. Raises InputError for codes that no rule has."""
    from pkv_lint.choice import Choice, check_code, codes_in

    context = click.get_current_context()
    configuration = configuration_of(context)
    known = [rule.CODE for rule in rules]

    def codes(name: str, given: str | None) -> tuple[str, ...] | None:
        configured = context.get_parameter_source(name) is ParameterSource.DEFAULT_MAP
        where = configuration.named(name) if configured else f"--{name}"
        return None if given is None else codes_in(given, where, known)

    for code in configuration.severities:
        check_code(code, configuration.named("severity"), known)
    return Choice(codes("select", select), codes("ignore", ignore) or (), configuration.severities)


def known_findings(file: str, *, update: bool) -> Baseline:
    """The baseline that the user named; an empty one where it is about to be written."""
    from pkv_lint.baseline import Baseline

    if not update:
        return Baseline.read(Path(file))
    check_writable(file)
    return Baseline.read(Path(file)) if Path(file).exists() else Baseline(Path(file), {})


def rewrite(known: Baseline, batch: Batch, chosen: Choice) -> int:
    """Write the findings into the baseline, unless something could not be judged. Returns the exit status."""
    complain_of(batch, named=True)
    if batch.incomplete:
        complain(PROGRAM, f"{known.file}: not written, since not everything could be judged")
        return 2
    new = known.updated(batch.reports, batch.files, chosen.takes)
    write_file(str(known.file), [new.dumps()])
    complain(PROGRAM, f"{known.file}: {counted(new.total, 'finding')} (it had {known.total:,})")
    return 0


def without(known: Baseline, batch: Batch, chosen: Choice) -> Batch:
    """What the baseline does not allow; says on stderr what it hides, and what of it is out of date."""
    reports = known.hide(batch.reports)
    hidden = sum(len(old.findings) - len(new.findings) for old, new in zip(batch.reports, reports, strict=True))
    gone = known.gone(batch.reports, batch.files, chosen.takes)
    if hidden:
        complain(PROGRAM, f"{known.file}: {counted(hidden, 'known finding')} not shown")
    if gone:
        complain(PROGRAM, f"{known.file}: {counted(gone, 'finding')} gone; --update-baseline takes them out")
    return replace(batch, reports=tuple(reports))


def complain_of(batch: Batch, *, named: bool) -> None:
    """One line on stderr for each file that could not be read and, if `named`, for each line that could not be judged
    (other formats have those among the findings)."""
    from pkv_lint.outputs.wording import one_line

    for report in batch.reports if named else ():
        for finding in report.unusable:
            complain(PROGRAM, one_line(finding))
    for error in batch.failed:
        complain(PROGRAM, error)


def explain(context: click.Context, option: click.Parameter, name: str | None) -> None:
    if name is None or context.resilient_parsing:
        return
    from pkv_lint.explaining import explanation, find_rule
    from pkv_lint.linting import load_rules

    write(explanation(find_rule(name, load_rules())))
    context.exit()


def list_rules(context: click.Context, option: click.Parameter, flag: bool) -> None:
    if not flag or context.resilient_parsing:
        return
    from pkv_lint.explaining import overview
    from pkv_lint.linting import load_rules

    write(overview(load_rules()))
    context.exit()


if __name__ == "__main__":
    sys.exit(main())
