"""Callbacks that name the stages of trainers: one file for each library, which it needs.

They name training steps, evaluation and saving for the report of `vramlab run` or of
`vramlab.track()`. Outside of a report they do nothing.
"""
