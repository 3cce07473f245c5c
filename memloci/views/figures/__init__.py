"""Records to SVG: the same records give the same bytes."""
