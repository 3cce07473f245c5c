"""SHOW: finished records to text, tables, figures and pages. A view draws, and computes nothing (tools/purity.py)."""
