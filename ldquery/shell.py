"""ldquery at the terminal: statements over several lines, completion, history."""

from __future__ import annotations

from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from client.cli.program import EXIT_OK, say
from ldquery.completion import SqlCompleter, SqlHighlighter
from ldquery.interpreter import NAME, Interpreter, ShellError
from ldquery.statements import hint, is_complete
from logdevice_py.core.status import LogDeviceError


def _history(path: Path) -> History:
    """What was typed before; of this time only where no file can be kept."""
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


class QueryShell:
    """Asks for statements until the end of input."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    def run(self) -> int:
        """Until .quit or the end of input; the exit status."""
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if is_complete(buffer.text):
                buffer.validate_and_handle()
                return
            if (told := hint(buffer.text)) is not None:
                run_in_terminal(lambda: say(NAME, told))
            buffer.insert_text("\n")

        prompt: PromptSession[str] = PromptSession(
            history=_history(Path.home() / ".ldquery_history"),
            completer=SqlCompleter(),
            lexer=SqlHighlighter(),
            multiline=True,
            key_bindings=keys,
            prompt_continuation="   ...> ",
        )
        config = self._interpreter.session.config
        print(f"{len(config.nodes)} nodes of {config.name}. .help for help.", flush=True)
        while not self._interpreter.ended:
            try:
                self.handle(prompt.prompt(f"{NAME}> ", default=self._interpreter.open_statement))
            except KeyboardInterrupt:
                self._interpreter.open_statement = ""
            except EOFError:
                break
        return EXIT_OK

    def handle(self, text: str) -> None:
        """Run an input; errors are told and end nothing."""
        try:
            self._interpreter.run(text)
        except (LogDeviceError, ShellError) as error:
            say(NAME, str(error))
        except KeyboardInterrupt:
            print()
