"""Shell completion: the scripts, and the answers that they ask the program for.

The scripts pass the words of the command line as arguments and read lines: a word, a tab, and perhaps a description.
They evaluate none of it, since descriptions are the text of memories.
"""

import warnings
from typing import Any

# Private; typer<0.29 is pinned, and tests run the scripts.
from typer._click.shell_completion import CompletionItem, ShellComplete

from oryx_memory.cli.output import Output, one_visible_line

_BASH = """\
_NAME() {
    local IFS=$'\\n'
    COMPREPLY=()
    local line word last=
    local -a words=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if [[ $last == --?* && $last != *=?* && ( $word == "=" || $last == *= ) ]]; then
            last+=$word  # bash takes --agent=ops for three words
            words[${#words[@]}-1]=$last
        else
            last=$word
            words+=("$word")
        fi
    done
    while IFS= read -r line; do
        COMPREPLY+=("${line%%$'\\t'*}")
    done < <(_ORYX_COMPLETE=1 PROGRAM "${words[@]}" 2>/dev/null)
}
complete -o default -F _NAME PROGRAM
"""
_ZSH = """\
#compdef PROGRAM
_NAME() {
    local -a values descriptions
    local line
    while IFS= read -r line; do
        values+=("${line%%$'\\t'*}")
        descriptions+=("${line//$'\\t'/  }")
    done < <(_ORYX_COMPLETE=1 PROGRAM "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#values} )); then
        compadd -l -d descriptions -a values
    else
        _files
    fi
}
compdef _NAME PROGRAM
"""
_FISH = """\
function _NAME
    set -l found (_ORYX_COMPLETE=1 PROGRAM (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)
    if count $found >/dev/null
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c PROGRAM -f -a '(_NAME)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def script(shell: str, program: str) -> str:
    """The completion script of a shell (a key of SCRIPTS) for `oryx` or `oryx-memory`."""
    return SCRIPTS[shell].replace("_NAME", f"_{program.replace('-', '_')}_complete").replace("PROGRAM", program)


class _Words(ShellComplete):
    """What may follow the words; the scripts' own protocol takes the place of Typer's."""

    def source_vars(self) -> dict[str, Any]:
        return {}

    def get_completion_args(self) -> tuple[list[str], str]:
        return [], ""

    def format_completion(self, item: CompletionItem) -> str:
        """A line for the script."""
        value = one_visible_line(str(item.value))
        return f"{value}\t{one_visible_line(item.help)}" if item.help else value


def answer(command: Any, program: str, words: list[str]) -> int:
    """Print what may stand in the place of the last word, a line each."""
    warnings.simplefilter("ignore")
    out = Output()
    *before, incomplete = words or [""]
    completer = _Words(command, {}, program, "")
    for item in completer.get_completions(before, incomplete):
        out.data(completer.format_completion(item))
    return 0
