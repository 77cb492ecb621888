"""ds4chat: a terminal chat for DeepSeek-V4-Flash with exact speculative decoding.

Importing the package imports nothing heavy.
"""

__version__ = "0.1.0"
