"""A classifier for other people: as an ONNX file, as a folder for the Hub, with a model card."""
