//! Starts an image with what its manifest names and nothing else.
