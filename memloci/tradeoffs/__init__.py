"""What is traded: layers, heads, mass and width against error, each row compiled and certified."""
