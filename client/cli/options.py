"""What the command lines of all programs have in common: the cluster file's default, the version, completion, times like -1h."""

from __future__ import annotations

import argparse
import enum
import importlib.metadata
import os
import re
from typing import Any, Final

from client.cluster_file import CLUSTER_VARIABLE, cluster_file, default_cluster_file
from logdevice_py.core.suggestion import nearest

COMPLETE_WORDS: Final = "--complete-words"
"""Has a program print words for the shell that completes them, in place of all else."""
SHELLS: Final = ("bash", "zsh", "fish")
_VALUE: Final = re.compile(r"^-(\d+(\.\d+)?[a-z]+|[1-9]\d*)$")
"""Times counted back from now, and numbers; -0 is an option."""


class ProgramParser(argparse.ArgumentParser):
    """A parser of arguments that looks for the cluster file, takes ``--from -1h``, which looks like an option, and says which verb or option was meant."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        # an abbreviation that fits today fits two options after the next version
        super().__init__(*arguments, **{"allow_abbrev": False, **named})
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

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """What argparse calls for the program and for its verb, which knows best what may be given to it: nothing is left over."""
        parsed, rest = super().parse_known_args(args, namespace)
        for each in rest:
            if not each.startswith("-"):
                self.error(f"nothing is expected where {each!r} stands")
            name = each.partition("=")[0]
            options = [option[2:] for option in self._option_string_actions if option[:2] == "--"]
            begun = (option for option in options if name[:2] == "--" and option.startswith(name[2:]))
            close = next(begun, None) or nearest(name.lstrip("-"), options)
            self.error(f"there is no option {name}{f'; did you mean --{close}?' if close else ''}")
        return parsed, rest

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


class Words(enum.Enum):
    """What a shell has completed by the program itself, from the cluster file that its command line names."""

    LOGS = "logs"  # paths and ids
    PATHS = "paths"  # of groups and directories
    LOGS_AND_PATHS = "logs-and-paths"
    NODES = "nodes"
    NODES_AND_ALL = "nodes-and-all"
    SETTINGS = "settings"  # that can be changed while nodes run


def complete_words(action: Any, words: Words) -> None:
    """A shell completes words of the cluster here."""
    function = f"_logdevice_words_{words.value.replace('-', '_')}"
    action.complete = {"bash": function, "zsh": function, "fish": f"(_logdevice_words {words.value})"}


def _functions(program: str) -> dict[str, str]:
    """The functions of `complete_words`, by shell. They say nothing when the program does not answer."""
    own = "".join(
        f'_logdevice_words_{each.value.replace("-", "_")}() {{ _logdevice_words {each.value} "$1"; }}\n'
        for each in Words
    )
    bash = """\
_logdevice_words() {
  "${COMP_WORDS[0]/#\\~/"$HOME"}" %s "$1" "$2" "${COMP_WORDS[@]:1}" 2>/dev/null
}
"""
    zsh = """\
_logdevice_words() {
  local -a found
  found=(${(f)"$(%s %s $1 "$PREFIX" "${(@Q)${(z)LBUFFER}}" 2>/dev/null)"})
  compadd -a found
}
"""
    fish = """\
function _logdevice_words
  set -l typed (commandline -ct)
  %s %s $argv[1] "$typed" (commandline -opc) 2>/dev/null
end
"""
    return {
        "bash": bash % COMPLETE_WORDS + own,
        "zsh": zsh % (program, COMPLETE_WORDS) + own,
        "fish": fish % (program, COMPLETE_WORDS),
    }


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


class _Hint(argparse.Action):
    """An option that another program has: says which."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: Any = None) -> None:
        parser.error(f"there is no {option_string} here: {self.const}")


def hint_at(options: argparse.ArgumentParser, *names: str, text: str) -> None:
    """Options that people may look for here, which another program has."""
    options.add_argument(*names, action=_Hint, const=text, nargs="?", help=argparse.SUPPRESS)


def version_option(options: argparse.ArgumentParser) -> None:
    """``--version``."""
    version = importlib.metadata.version("logdevice-py")
    options.add_argument("--version", action="version", version=f"%(prog)s {version}")


class _PrintCompletion(argparse.Action):
    """Prints a shell's script, and ends the program."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: Any = None) -> None:
        import shtab

        try:
            print(shtab.complete(parser, shell=values, preamble=_functions(parser.prog)[values]), flush=True)
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
