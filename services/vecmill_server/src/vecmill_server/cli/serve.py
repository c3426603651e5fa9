"""The command `vecmill serve`, found by the library's command line through an entry point."""

import logging
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from vecmill.config import MillConfig
from vecmill.errors import SetupError
from vecmill.values.environment import environment_variables
from vecmill.values.garbage import no_garbage_collection
from vecmill_server.base.options import build_settings, naming_options, settings_options
from vecmill_server.base.settings import LogFormat, ServerSettings
from vecmill_server.cli.advice import ServeCommand, warn_of_misspelt, warn_of_variables
from vecmill_server.process import IGNORED_SIGNALS, ExitStatus

if TYPE_CHECKING:
    from vecmill_server.catalog.model_choice import ModelChoice
    from vecmill_server.process.member import Member

STANDARD_OUTPUT = 1

# By which an operator chooses the arenas of glibc.
ARENA_VARIABLES = frozenset({"MALLOC_ARENA_MAX", "GLIBC_TUNABLES"})
_LOG_FORMAT = "--log-format"
CONFIG = "config_file"
# Options that the operator gave here take the place of the configuration file's.
_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


class LoggedServeCommand(ServeCommand):
    """The command, whose usage errors have the format of the log, if that is JSON."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        given = list(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            if not self._asks_for_json(info_name, given, parent):
                raise
            _log_start_error(error.format_message())
            raise SystemExit(error.exit_code) from error

    def _asks_for_json(self, info_name: str | None, args: list[str], parent: click.Context | None) -> bool:
        """Return whether the arguments, which have an error, or the environment ask for a log in JSON."""
        if f"{_LOG_FORMAT}={LogFormat.JSON}" in args or (_LOG_FORMAT, LogFormat.JSON) in pairwise(args):
            return True
        with super().make_context(info_name, args, parent, resilient_parsing=True) as context:
            return context.params.get("log_format") == LogFormat.JSON


def _read_config(context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """Make the options of the configuration file the defaults of the command."""
    if path is None:
        return None
    # Imported here, since few starts need a parser of TOML.
    from vecmill_server.base.config_file import read_config_file

    try:
        config = context.meta[CONFIG] = read_config_file(path)
    except SetupError as error:
        raise click.BadParameter(error.message) from error
    context.default_map = dict(config.options)
    return path


@click.command(
    cls=LoggedServeCommand,
    context_settings={
        "auto_envvar_prefix": "VECMILL",
        "show_default": True,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
    },
)
@click.argument("models", metavar="[MODEL]...", nargs=-1, envvar="VECMILL_MODEL")
@click.option(
    "--config",
    CONFIG,
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_read_config,
    envvar="VECMILL_CONFIG",
    show_envvar=True,
    help="A TOML file with models and options. Options of the command line and the environment go first.",
)
@settings_options(ServerSettings, MillConfig)
@click.pass_context
def serve(context: click.Context, /, models: tuple[str, ...], **values: Any) -> None:
    """Serve one MODEL or several over HTTP.

    A MODEL is a directory, or owner/name on a hub; NAME=MODEL serves it under another name. The default is
    the environment variable VECMILL_MODEL, or else the embedded all-MiniLM-L6-v2. Several models share the
    cores; each has its own queue and limits. A model that cannot be loaded does not stop the others, except
    with --strict.
    """
    open_standard_files()
    end_at_signals()
    if not ARENA_VARIABLES & environment_variables().keys():  # the operator has not chosen
        from vecmill.hardware.cores import available_cores
        from vecmill.hardware.memory import limit_arenas

        limit_arenas(values["cores"] or available_cores())
    member = None
    if values["processes"] > 1:
        member = _start_processes(context, values)
    # Imported here, so that `vecmill --help` and other commands do not wait for the imports of the server.
    with no_garbage_collection():
        from vecmill_server.process.runner import run_server
        from vecmill_server.service.service import create_service
        from vecmill_server.telemetry.line_writer import LineWriter
        from vecmill_server.telemetry.logs import (
            configure_logging,
            redirect_standard_error,
            report_setup_error,
        )

    # Before all settings are checked, so that their errors have the format of the log too.
    log_format = LogFormat(values["log_format"])
    log = configure_logging(ServerSettings(log_format=log_format, log_level=values["log_level"]))
    output = LineWriter(STANDARD_OUTPUT)
    try:
        if log_format is LogFormat.JSON:
            redirect_standard_error()
        warn_of_variables(environment_variables(), _set_parameters(context))
        warn_of_misspelt(environment_variables(), context.params)
        with naming_options(context):
            settings = build_settings(ServerSettings, values)
            config = build_settings(MillConfig, values)
            service = create_service(_choose_models(context, values), settings, config)
        service.metrics.watch_log(lambda: log.dropped)
        if member is None:
            status = run_server(service, output.write)
        else:
            service = replace(service, siblings=member.siblings)
            member.watch(service.drain)
            status = run_server(service, partial(member.announce, output.write), member.listener)
    except SetupError as error:
        if log_format is LogFormat.TEXT:
            raise
        report_setup_error(error.message, log_format)
        status = ExitStatus.SETUP
    finally:
        output.flush()
        log.flush()  # so that an error message is the last line
    context.exit(status)


def _start_processes(context: click.Context, values: dict[str, Any]) -> "Member":
    """Start several processes, and return in each of them with its share of `values`.

    The supervisor ends here. No thread of Python may run before the processes are forked.
    """
    with no_garbage_collection():
        import_module("vecmill.mill")  # once for all processes, which share its memory
        from vecmill_server.process.member import Member
        from vecmill_server.process.supervisor import start_processes
        from vecmill_server.telemetry.logs import write_warning

    log_format = LogFormat(values["log_format"])
    report = partial(write_warning, "vecmill_server.processes", log_format=log_format)
    try:
        with naming_options(context):
            found = start_processes(build_settings(ServerSettings, values), values["cores"], report)
    except SetupError as error:
        if log_format is LogFormat.TEXT:
            raise
        _log_start_error(error.message)
        context.exit(ExitStatus.SETUP)
    if not isinstance(found, Member):
        context.exit(found)
    values.update(found.shares)
    return found


def _choose_models(context: click.Context, values: dict[str, Any]) -> "list[ModelChoice]":
    """Return the models of the command line, else those of the configuration file."""
    from vecmill_server.catalog.model_choice import choose_models

    config = context.meta.get(CONFIG)
    configured = () if config is None else config.models
    return choose_models(context.params["models"], configured, values, given_parameters(context))


def given_parameters(context: click.Context) -> set[str]:
    """Return the parameters that the command line or an environment variable sets."""
    return {name for name in context.params if context.get_parameter_source(name) in _GIVEN}


def _set_parameters(context: click.Context) -> set[str]:
    """Return the parameters that the command line, an environment variable or the file sets."""
    return {
        name for name in context.params if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }


def _log_start_error(message: str) -> None:
    from vecmill_server.telemetry.logs import configure_logging, report_setup_error

    log = configure_logging(ServerSettings(log_format=LogFormat.JSON))
    report_setup_error(message, LogFormat.JSON)
    log.flush()


def open_standard_files() -> None:
    """Start the program again if a standard file was closed when it began, with /dev/null in its place.

    Otherwise a connection or a file could get the number of the file, and log lines would be written there.
    An import may have opened a file under that number already, and still need it, as libffi does for Python
    3.14. So the number cannot be taken back in this process.
    """
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    closed = [fd for fd, stream in enumerate(streams) if stream is None]
    if not closed:
        return
    null = os.open(os.devnull, os.O_RDWR)
    for fd in closed:
        os.dup2(null, fd)
        os.set_inheritable(fd, True)  # `null` may be `fd`
    os.execv(sys.executable, sys.orig_argv)


def _end(*_: object) -> None:
    logging.shutdown()  # writes the lines of the log that wait
    os._exit(0)


def end_at_signals() -> None:
    """End the process with status 0 at SIGTERM and SIGHUP, until the runner handles signals.

    The first process of a container would ignore these signals without a handler. Under nohup, SIGHUP stays
    ignored. Signals that would end the process, and mean nothing to it, are ignored.
    """
    for number in IGNORED_SIGNALS:
        with suppress(ValueError):  # this is not the main thread
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        with suppress(ValueError):  # this is not the main thread
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)
