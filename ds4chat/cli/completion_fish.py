"""The completion script of fish."""

from __future__ import annotations

from collections.abc import Iterator

from ds4chat.cli.completion import Command, Flag, Kind, data_home, quoted

_FUNCTIONS = """\
# fish completion of ds4chat: save it as ds4chat.fish in fish's completions folder
function __ds4chat_at
  set -l at ''
  set -l typed (commandline -opc)
  if set -q typed[2]; and contains -- $typed[2] FIRSTS
    set at $typed[2]
    for word in $typed
      if contains -- "$at $word" SECONDS
        set at "$at $word"
        break
      end
    end
  end
  test "$at" = "$argv[1]"
end
function __ds4chat_root
  set -l typed (commandline -opc)
  if set -l place (contains -i -- --sessions $typed); and test $place -lt (count $typed)
    echo $typed[(math $place + 1)]
  else if test -n "$XDG_DATA_HOME"
    echo "$XDG_DATA_HOME/ds4chat/sessions"
  else
    echo "$HOME/%DATA%/ds4chat/sessions"
  end
end
function __ds4chat_sessions
  for path in (__ds4chat_root)/*/
    set -l name (string replace -r '.*/' '' (string trim -r -c / $path))
    string match -q -r '^[~-]' -- $name; or echo $name
  end
end
function __ds4chat_deleted
  for path in (__ds4chat_root)/.trash/*/
    string replace -r '.*/[0-9]+~' '' (string trim -r -c / $path)
  end
end
complete -c ds4chat -n "test (count (commandline -opc)) -eq 1" -a FIRSTS_AS_ONE
"""
_FOLLOWS = {
    Kind.FILE: "-r -F",
    Kind.FOLDER: "-x -a '(__fish_complete_directories)'",
    Kind.TEXT: "-x",
    Kind.NOTHING: "",
}
_NAMES = {Kind.SESSION: "(__ds4chat_sessions)", Kind.DELETED: "(__ds4chat_deleted)"}


def make(program: Command) -> str:
    """The whole script."""
    nodes = list(program.walk())
    firsts = " ".join(name for name, _ in program.commands)
    seconds = " ".join(quoted(at) for at, _ in nodes if " " in at)
    head = (
        _FUNCTIONS.replace("FIRSTS_AS_ONE", quoted(firsts))
        .replace("FIRSTS", firsts)
        .replace("SECONDS", seconds)
        .replace("%DATA%", data_home())
    )
    lines = [line for at, command in nodes for line in _node(at, command)]
    return head + "\n".join(lines) + "\n"


def _node(at: str, command: Command) -> Iterator[str]:
    where = f"complete -c ds4chat -n \"__ds4chat_at '{at}'\""
    if at:
        subcommands = tuple(name for name, _ in command.commands)
        words = " ".join((*subcommands, *command.values, _NAMES.get(command.kind, ""))).strip()
        offered = f" -a {quoted(words)}" if words else ""
        if command.kind is not Kind.FILE:
            yield f"{where} -f{offered}"
    for flag in command.flags:
        yield f"{where} {_flag(flag)}"


def _flag(flag: Flag) -> str:
    words = []
    for name in flag.names:
        bare = name.lstrip("-")
        kind = "l" if name.startswith("--") else "s" if len(bare) == 1 else "o"
        words.append(f"-{kind} {bare}")
    if flag.kind in _FOLLOWS:
        words.append(_FOLLOWS[flag.kind])
    else:
        values = " ".join((*flag.values, _NAMES.get(flag.kind, ""))).strip()
        words.append(f"-x -a {quoted(values)}")
    words.append(f"-d {quoted(flag.doc)}")
    return " ".join(word for word in words if word)
