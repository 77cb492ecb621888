"""The race of plain against speculative decoding: everything but its screen. Pure.

`ask` and `presets` say what is raced, `race` runs it over the protocol, `lane` keeps one lane's
record, `verdict` compares them, `replay` shows them again, `card` and its writers tell others.
"""
