"""Every screen at three sizes, in colour and without: text and styles, and as a picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pilot.conftest import OpenChat
from tests.pilot.styled import styled
from tests.scenes import SCENES, play, svg_of

SIZES = [(80, 24), (120, 40), (200, 60)]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("no_color", [False, True], ids=["colour", "mono"])
@pytest.mark.parametrize("name", SCENES)
async def test_a_screen(
    open_chat: OpenChat,
    check_snapshot: Callable[[str, str], None],
    check_picture: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    no_color: bool,
    size: tuple[int, int],
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    scene = SCENES[name]
    options = scene.options(tmp_path, no_color=no_color)
    async with open_chat(
        script=scene.script,
        size=size,
        options=options,
        is_ready=scene.is_ready,
        is_clock_stopped=True,
    ) as chat:
        await play(scene, chat)
        shown = styled(chat.app.screen._compositor.render_strips(chat.app.size))
        looks = shown.rpartition("~ meaning\n")[2]
        assert ("#" in looks) is not no_color
        stem = f"{name}-{size[0]}x{size[1]}-{'mono' if no_color else 'colour'}"
        check_snapshot(stem, shown)  # first: its difference can be read
        check_picture(stem, svg_of(chat))
