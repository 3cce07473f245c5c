"""PLAN: sizes and places; still no weights."""
