"""Typed columns from memory, next to the libraries that decode the same values.

    python -m bench.micro.typed --output bench/results/typed.json

One core, thread pools of one, CPU seconds of the process. All contestants of a case read the same
values and are run in turn within each repetition; what counts is the ratio within a repetition,
and of those the median. kfast's time is from a raw column to columns exported to Arrow. What other
libraries need (lists, joined text, Arrow arrays) is made for them outside of the clock.
"""
