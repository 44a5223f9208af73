//! A file system that fails on request.
