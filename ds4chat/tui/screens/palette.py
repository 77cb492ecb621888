"""The command palette: every slash command by a part of its name."""

from __future__ import annotations

from functools import partial
from typing import cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from ds4chat.tui.command_host import CommandHost, SlashCommand
from ds4chat.tui.commands import COMMANDS, execute


class CommandProvider(Provider):
    """Offers the commands of the chat behind the palette."""

    _has_chosen = False

    async def discover(self) -> Hits:
        """All commands."""
        for command in COMMANDS.values():
            yield DiscoveryHit(
                Content(command.usage),
                partial(self._choose, command),
                text=command.usage,
                help=command.summary,
            )

    async def search(self, query: str) -> Hits:
        """Commands whose name or summary resembles the query."""
        matcher = self.matcher(query)
        for command in COMMANDS.values():
            text = f"{command.usage}  {command.summary}"
            score = matcher.match(text)
            if score > 0:
                _, found = matcher.fuzzy_search.match(query, text)
                shown = Content(text)  # no markup: its brackets are the usage's
                for at in found:
                    shown = shown.stylize(matcher.match_style, at, at + 1)
                yield Hit(score, shown, partial(self._choose, command))

    def _choose(self, command: SlashCommand) -> None:
        """Run it, or put it into the prompt when it wants an argument; once, at any Enter."""
        if self._has_chosen:
            return
        self._has_chosen = True
        host = self._host()
        if command.wants_words:
            host.fill_prompt(f"/{command.name} ")
        else:
            execute(host, command.name, "")

    def _host(self) -> CommandHost:
        # Only the chat screen lists this provider, and it is a CommandHost.
        return cast(CommandHost, self.screen)
