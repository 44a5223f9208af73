//! Whole tables: built, opened, read and damaged.

mod damage;
mod features;
mod matrix;
mod sample;
