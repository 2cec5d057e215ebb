"""Files of other tools: where each value stands, what they say in the field's words, what is wrong with them.

A document is text with a tree of values and their places; a tool turns it into a reading; readings of one job
meet in `job`. Files are never executed, imported or unpickled. Knows no estimate: `checking` judges.
"""
