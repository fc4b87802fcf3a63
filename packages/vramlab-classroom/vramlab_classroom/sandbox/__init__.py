"""Walls around code that nobody trusts."""
