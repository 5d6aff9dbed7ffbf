"""One module per format: `NAME`, `looks(folder)`, `read(folder, contents)`."""
