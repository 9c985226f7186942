"""Atari Breakout: the emulator, a player trained on it, and the frames of its games (§5.3)."""
