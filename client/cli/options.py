"""What the command lines of all programs have in common: the cluster file's default, the version, completion, times like -1h."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
from pathlib import Path
from typing import Any, Final

from logdevice_py.core.suggestion import nearest

CLUSTER_VARIABLE: Final = "LOGDEVICE_CLUSTER"
"""Names the cluster file where -c does not."""
SHELLS: Final = ("bash", "zsh", "fish")
_VALUE: Final = re.compile(r"^-(\d+(\.\d+)?[a-z]+|[1-9]\d*)$")
"""Times counted back from now, and numbers; -0 is an option."""


def default_cluster_file() -> Path:
    """The file that is used where neither -c nor the variable names one."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "logdevice" / "cluster.toml"


def cluster_file() -> str | None:
    """The cluster file of who names none on the command line; None: there is none."""
    named = os.environ.get(CLUSTER_VARIABLE)
    if named:
        return named
    path = default_cluster_file()
    return str(path) if path.exists() else None


class ProgramParser(argparse.ArgumentParser):
    """A parser of arguments that looks for the cluster file, takes ``--from -1h``, which looks like an option, and says which verb was meant."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        for part in (self, self._optionals, self._positionals):
            part._negative_number_matcher = _VALUE  # what argparse takes for a value although it begins with a dash

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """What argparse calls to see whether a value is one of the choices."""
        if action.choices is None or value in action.choices:
            return
        choices = list(map(str, action.choices))
        close = nearest(str(value), choices)
        meant = f"; did you mean {close}?" if close else ""
        raise argparse.ArgumentError(action, f"there is no {value!r}{meant} (choose from {', '.join(choices)})")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The arguments; the program ends where they are wrong, or no cluster file is named."""
        parsed = super().parse_args(args, namespace)
        if getattr(parsed, "config", "") is None:
            parsed.config = cluster_file()
            if parsed.config is None:
                self.error(
                    f"no cluster file: give -c FILE, set {CLUSTER_VARIABLE}, or have one at {default_cluster_file()}"
                )
        return parsed


def cluster_option(options: argparse.ArgumentParser, *, default: Any = None) -> None:
    """The cluster file."""
    action = options.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        default=default,
        help=f"the cluster file (default: ${CLUSTER_VARIABLE}, else ~/.config/logdevice/cluster.toml)",
    )
    complete_files(action)


def complete_files(action: Any) -> None:
    """A shell completes names of files here."""
    action.complete = {
        "bash": "_shtab_compgen_files",
        "zsh": "_files",
        "fish": "(__fish_complete_path (commandline -ct))",
    }


def complete_directories(action: Any) -> None:
    """A shell completes names of directories here."""
    action.complete = {
        "bash": "_shtab_compgen_dirs",
        "zsh": "_files -/",
        "fish": "(__fish_complete_directories (commandline -ct))",
    }


def version_option(options: argparse.ArgumentParser) -> None:
    """``--version``."""
    version = importlib.metadata.version("logdevice-py")
    options.add_argument("--version", action="version", version=f"%(prog)s {version}")


class _PrintCompletion(argparse.Action):
    """Prints a shell's script, and ends the program."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: Any = None) -> None:
        import shtab

        try:
            print(shtab.complete(parser, shell=values), flush=True)
        except BrokenPipeError:  # who reads has enough; the interpreter must not meet the closed pipe at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        parser.exit()


def program_options(options: argparse.ArgumentParser) -> None:
    """``--version`` and completion."""
    version_option(options)
    options.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=SHELLS,
        help="print what makes a shell complete this program's options: eval it, or keep it where the shell looks",
    )
