"""The completion script of bash."""

from __future__ import annotations

from collections.abc import Iterable

from ds4chat.cli.completion import Command, Flag, Kind, data_home, quoted

_HEAD = """\
# bash completion of ds4chat: source this file, or put it where bash looks for it
_ds4chat_words() { COMPREPLY+=($(compgen -W "$1" -- "$cur")); }
_ds4chat_paths() { local IFS=$'\\n'; COMPREPLY+=($(compgen "$1" -- "$cur")); }
_ds4chat_sessions() {
  local root="${XDG_DATA_HOME:-$HOME/%DATA%}/ds4chat/sessions" path name i
  for ((i = 1; i < COMP_CWORD - 1; i++)); do
    [[ "${COMP_WORDS[i]}" == --sessions ]] && root="${COMP_WORDS[i+1]/#\\~/$HOME}"
  done
  for path in "$root/$1"*/; do
    path="${path%/}" name="${path##*/}"
    [[ -n "$1" ]] && name="${name#*\\~}"
    [[ -d "$path" && "$name" == "$cur"* && "$name" != [.~-]* ]] && COMPREPLY+=("$name")
  done
}
_ds4chat() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"
  local at='' flags='' words='' rest='' i
  COMPREPLY=()
  [[ "$cur" == = ]] && cur=''
  [[ "$prev" == = ]] && prev="${COMP_WORDS[COMP_CWORD-2]}"
"""
_TAIL = """\
  if [[ "$cur" == -* ]]; then
    _ds4chat_words "$flags"
    return
  fi
  case "$rest" in
    file) _ds4chat_paths -f ;;
    folder) _ds4chat_paths -d ;;
    session) _ds4chat_sessions '' ;;
    deleted) _ds4chat_sessions .trash/ ;;
  esac
  _ds4chat_words "$words"
}
complete -o filenames -F _ds4chat ds4chat
"""
_VALUE = {
    Kind.FILE: "_ds4chat_paths -f; return",
    Kind.FOLDER: "_ds4chat_paths -d; return",
    Kind.TEXT: "return",
}


def make(program: Command) -> str:
    """The whole script."""
    nodes = list(program.walk())
    firsts = "|".join(name for name, _ in program.commands)
    seconds = "|".join(quoted(at) for at, _ in nodes if " " in at)
    where = [
        "  if ((COMP_CWORD > 1)); then\n",
        f'    case "${{COMP_WORDS[1]}}" in {firsts}) at="${{COMP_WORDS[1]}}" ;; esac\n',
        "    for ((i = 2; i < COMP_CWORD; i++)); do\n",
        f'      case "$at ${{COMP_WORDS[i]}}" in {seconds})\n',
        '        at="$at ${COMP_WORDS[i]}"; break ;;\n      esac\n    done\n  fi\n',
    ]
    tree = ['  case "$at" in\n', *(_node(at, command) for at, command in nodes), "  esac\n"]
    return "".join((_HEAD.replace("%DATA%", data_home()), *where, *tree, _TAIL))


def _node(at: str, command: Command) -> str:
    """What can follow one command: one arm of the shell's `case`."""
    values = " ".join((*(name for name, _ in command.commands), *command.values))
    words = f"words={quoted(values)}" if values else ":"
    if not at:  # a subcommand is the first word or none
        words = f"((COMP_CWORD == 1)) && {words}"
    arms = "".join(_arms(command.flags))
    return (
        f"    {quoted(at)})\n"
        f"      flags={quoted(' '.join(command.names))} rest={command.kind}\n"
        f"      {words}\n"
        f'      case "$prev" in\n{arms}      esac ;;\n'
    )


def _arms(flags: Iterable[Flag]) -> Iterable[str]:
    for flag in flags:
        body = _VALUE.get(flag.kind, "")
        if flag.kind is Kind.WORD:
            body = f"_ds4chat_words {quoted(' '.join(flag.values))}; return"
        elif flag.kind is Kind.SESSION:
            more = f" _ds4chat_words {quoted(' '.join(flag.values))};" if flag.values else ""
            body = f"_ds4chat_sessions '';{more} return"
        if body:
            yield f"        {'|'.join(flag.names)}) {body} ;;\n"
