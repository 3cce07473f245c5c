"""STUDY: claims against evidence."""
