"""The table of rules, and what rules are written with: steps, operands, calls to record."""
