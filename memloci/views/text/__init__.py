"""Records to words, which terminal and pages share."""
