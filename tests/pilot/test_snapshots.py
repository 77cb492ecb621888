"""Every screen at three sizes, in colour and without: text and styles, cell by cell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ds4chat import paths
from ds4chat.demo import TOUR
from ds4chat.tui.options import ChatOptions
from tests.pictures import SCENES, play
from tests.pilot.conftest import OpenChat
from tests.pilot.styled import styled


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("no_color", [False, True], ids=["colour", "mono"])
@pytest.mark.parametrize("scene", SCENES)
async def test_a_screen(
    open_chat: OpenChat,
    check_snapshot: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    scene: str,
    no_color: bool,
    size: tuple[int, int],
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    options = ChatOptions(
        is_animated=False, no_color=no_color, themes_dirs=(paths.themes_dir(),)
    )
    async with open_chat(script=TOUR, size=size, options=options) as chat:
        await play(scene, chat)
        shown = styled(chat.app.screen._compositor.render_strips(chat.app.size))
        looks = shown.rpartition("~ meaning\n")[2]
        assert ("#" in looks) is not no_color
        kind = "mono" if no_color else "colour"
        check_snapshot(f"{scene}-{size[0]}x{size[1]}-{kind}", shown)
