"""The completion script of zsh."""

from __future__ import annotations

from ds4chat.cli.completion import Command, Flag, Kind, data_home, quoted

_HEAD = """\
#compdef ds4chat
# zsh completion of ds4chat: save it as _ds4chat in a folder of $fpath
_ds4chat_root() {
  local i
  REPLY="${XDG_DATA_HOME:-$HOME/%DATA%}/ds4chat/sessions"
  for ((i = 2; i < $#typed; i++)); do
    [[ "$typed[i]" == --sessions ]] && REPLY="${typed[i+1]/#\\~/$HOME}"
  done
}
_ds4chat_sessions() {
  local REPLY
  local -a found
  _ds4chat_root
  found=("$REPLY"/*(N/:t))
  compadd "$@" -- "${(@)found:#[~-]*}"
}
_ds4chat_deleted() {
  local REPLY
  local -a found
  _ds4chat_root
  found=("$REPLY"/.trash/*(N/:t))
  compadd "$@" -- "${(@)found#*\\~}"
}
"""
_TAIL = """\
if [ "$funcstack[1]" = "_ds4chat" ]; then
  _ds4chat "$@"
else
  compdef _ds4chat ds4chat
fi
"""
_ACTIONS = {
    Kind.FILE: ":file:_files",
    Kind.FOLDER: ":folder:_files -/",
    Kind.SESSION: ":session:_ds4chat_sessions",
    Kind.DELETED: ":session:_ds4chat_deleted",
    Kind.TEXT: ":text: ",
}


def make(program: Command) -> str:
    """The whole script: one function for each command."""
    functions = [_function(at, command) for at, command in reversed(list(program.walk()))]
    return "".join((_HEAD.replace("%DATA%", data_home()), *functions, _TAIL))


def _function(at: str, command: Command) -> str:
    specs = [f"    {_spec(name, flag)} \\\n" for flag in command.flags for name in flag.names]
    places = _places(at, command)
    specs += [f"    {place} \\\n" for place in places]
    specs[-1] = specs[-1].replace(" \\\n", "\n")
    all_words = "" if at else '  local -a typed\n  typed=("${(@)words}")\n'
    head = f"{_name(at)}() {{\n{all_words}{_descent(at, command)}"
    return f"{head}  _arguments \\\n{''.join(specs)}}}\n"


def _name(at: str) -> str:
    return "_ds4chat" if not at else f"_ds4chat_at_{at.replace(' ', '_')}"


def _descent(at: str, command: Command) -> str:
    """Go on below a subcommand that was typed; of the program it is the first word."""
    if not command.commands:
        return ""
    arms = "".join(
        f'      {name}) words=("${{(@)words[i,-1]}}"); ((CURRENT -= i - 1)); '
        f"{_name(f'{at} {name}'.strip())}; return ;;\n"
        for name, _ in command.commands
    )
    last = "i < CURRENT" if at else "i < CURRENT && i < 3"
    return (
        f"  local i\n  for ((i = 2; {last}; i++)); do\n"
        f'    case "$words[i]" in\n{arms}    esac\n  done\n'
    )


def _places(at: str, command: Command) -> list[str]:
    """The words that are no flags."""
    words = " ".join((*(name for name, _ in command.commands), *command.values))
    places = []
    if not at:
        first = f"_alternative 'commands:command:({words})' 'files:model:_files'"
        places.append(quoted(f"1:model or command:{{{first}}}"))
    elif words:
        places.append(quoted(f"1:word:({words})"))
    action = _ACTIONS.get(command.kind)
    places += [quoted(f"*{action}")] if action else []
    return places or [quoted("*: : ")]


def _spec(name: str, flag: Flag) -> str:
    doc = flag.doc
    for mark in "\\[]:":
        doc = doc.replace(mark, "\\" + mark)
    action = _ACTIONS.get(flag.kind, "")
    words = " ".join(flag.values)
    if flag.kind is Kind.WORD:
        action = f":value:({words})"
    elif flag.values:
        action = f":session:{{_ds4chat_sessions; compadd {words}}}"
    return quoted(f"{name}[{doc}]{action}")
