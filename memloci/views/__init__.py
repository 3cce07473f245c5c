"""SHOW: records to tables, figures and pages."""
