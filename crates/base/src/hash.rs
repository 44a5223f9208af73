//! Hashes whose values are part of a file format.
