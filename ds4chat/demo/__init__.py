"""An engine without a model: scripted replies that obey the whole protocol.

Shipped, because it drives every test of the screen and the recorded tour. It must not know the
screen, and it imports the standard library and the protocol only.
"""

from ds4chat.demo.engine import ScriptedEngine
from ds4chat.demo.script import Failure, Reply, Script
from ds4chat.demo.tour import TOUR

__all__ = ["TOUR", "Failure", "Reply", "Script", "ScriptedEngine"]
