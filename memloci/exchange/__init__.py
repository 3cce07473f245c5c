"""IN, OUT: PyTorch, TransformerLens, ONNX, VNN-LIB, and a library of models whose circuits are known."""
