"""The small, safe language of task files: parse, evaluate on arrays, enclose on intervals and balls, bound tails."""
