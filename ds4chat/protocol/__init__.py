"""All that the screen and the engine say to each other. Standard library only."""
