"""Completion scripts for bash, zsh and fish, made from the program's own table of flags.

A script holds plain words and calls nothing but the shell: completing starts no Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag with its spellings.

    `values` are the words that may follow, `takes_file` says that a path does; with neither a
    value is free text, if `takes_value`.
    """

    names: tuple[str, ...]
    doc: str
    values: tuple[str, ...] = ()
    takes_value: bool = False
    takes_file: bool = False


def script(shell: str, flags: Sequence[Flag], commands: Sequence[str]) -> str:
    """The completion script of a shell, one of `SHELLS`.

    Args:
        shell: which one.
        flags: every flag of the program.
        commands: its subcommands, which may be the first word.
    """
    makers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    return makers[shell](flags, commands)


def _names(flags: Iterable[Flag]) -> list[str]:
    return [name for flag in flags for name in flag.names]


def _case(flags: Iterable[Flag], body: str) -> str:
    """One arm of a shell `case` over all spellings; empty without any."""
    names = "|".join(_names(flags))
    return f"    {names}) {body} ;;\n" if names else ""


def _bash(flags: Sequence[Flag], commands: Sequence[str]) -> str:
    arms = [
        _case([flag], f'COMPREPLY=($(compgen -W "{" ".join(flag.values)}" -- "$cur")); return')
        for flag in flags
        if flag.values
    ]
    arms.append(
        _case(
            [flag for flag in flags if flag.takes_file],
            'COMPREPLY=($(compgen -f -- "$cur")); return',
        )
    )
    free = [f for f in flags if f.takes_value and not f.values and not f.takes_file]
    arms.append(_case(free, "return"))
    return (
        "# bash completion of ds4chat: source this file, or put it where bash looks for it\n"
        "_ds4chat() {\n"
        '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"\n'
        "  COMPREPLY=()\n"
        '  case "$prev" in\n'
        f"{''.join(arms)}"
        "  esac\n"
        '  if [[ "$cur" == -* ]]; then\n'
        f'    COMPREPLY=($(compgen -W "{" ".join(_names(flags))}" -- "$cur"))\n'
        "    return\n"
        "  fi\n"
        '  COMPREPLY=($(compgen -f -- "$cur"))\n'
        "  if [[ $COMP_CWORD -eq 1 ]]; then\n"
        f'    COMPREPLY+=($(compgen -W "{" ".join(commands)}" -- "$cur"))\n'
        "  fi\n"
        "}\n"
        "complete -o filenames -F _ds4chat ds4chat\n"
    )


def _zsh(flags: Sequence[Flag], commands: Sequence[str]) -> str:
    specs = [f"    {_zsh_spec(name, flag)} \\\n" for flag in flags for name in flag.names]
    return (
        "#compdef ds4chat\n"
        "# zsh completion of ds4chat: save it as _ds4chat in a folder of $fpath\n"
        "_ds4chat_first() {\n"
        f"  _alternative 'commands:command:({' '.join(commands)})' 'files:model:_files'\n"
        "}\n"
        "_ds4chat() {\n"
        "  _arguments \\\n"
        f"{''.join(specs)}"
        "    '1:model or command:_ds4chat_first' \\\n"
        "    '*:file:_files'\n"
        "}\n"
        'if [ "$funcstack[1]" = "_ds4chat" ]; then\n'
        '  _ds4chat "$@"\n'
        "else\n"
        "  compdef _ds4chat ds4chat\n"
        "fi\n"
    )


def _zsh_spec(name: str, flag: Flag) -> str:
    doc = flag.doc
    for mark in "\\[]:":
        doc = doc.replace(mark, "\\" + mark)
    if flag.values:
        action = f":value:({' '.join(flag.values)})"
    elif flag.takes_file:
        action = ":file:_files"
    else:
        action = ":value: " if flag.takes_value else ""
    return _quoted(f"{name}[{doc}]{action}")


def _fish(flags: Sequence[Flag], commands: Sequence[str]) -> str:
    lines = [
        "# fish completion of ds4chat: save it as ds4chat.fish in fish's completions folder",
        "complete -c ds4chat -n __fish_is_first_arg -a " + _quoted(" ".join(commands)),
        *(_fish_line(flag) for flag in flags),
    ]
    return "\n".join(lines) + "\n"


def _fish_line(flag: Flag) -> str:
    words = ["complete -c ds4chat"]
    for name in flag.names:
        bare = name.lstrip("-")
        kind = "l" if name.startswith("--") else "s" if len(bare) == 1 else "o"
        words.append(f"-{kind} {bare}")
    if flag.values:
        words.append(f"-x -a {_quoted(' '.join(flag.values))}")
    elif flag.takes_file:
        words.append("-r -F")
    elif flag.takes_value:
        words.append("-x")
    words.append(f"-d {_quoted(flag.doc)}")
    return " ".join(words)


def _quoted(text: str) -> str:
    """A word in single quotes, for bash, zsh and fish alike."""
    return "'" + text.replace("'", "'\"'\"'") + "'"
