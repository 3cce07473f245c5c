"""What everybody shares: errors, specs, numbers as text, files, intervals."""
