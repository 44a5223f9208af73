//! An in-memory file system with a crash model.
