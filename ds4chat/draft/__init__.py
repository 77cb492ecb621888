"""DSpark: the draft module and the accept rules."""
