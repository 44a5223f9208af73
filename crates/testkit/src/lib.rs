//! The reference model and the generators that tests of the engine share.
#![forbid(unsafe_code)]

pub mod crash;
pub mod damage;
pub mod faults;
pub mod fifo_run;
pub mod filtered_run;
pub mod model;
pub mod process;
pub mod random_options;
pub mod random_run;
pub mod record;
pub mod sorted_list;
pub mod ttl_run;
pub mod watchdog;
pub mod write_order;
