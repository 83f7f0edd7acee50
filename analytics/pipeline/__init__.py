"""The layers, one file each: plain functions from tables to tables, in the order in which they are used.

schema, read (bronze), silver, skew, gold, facts, levels; quality gathers what was wrong, run puts all of it in a row.
"""
