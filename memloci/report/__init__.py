"""REPORT: records to tables, figures and pages. No numerics here."""
