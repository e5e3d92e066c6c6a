//! Ids that the client chooses, so that a repeated request does nothing twice.

use std::io;

use relive_types::{Timestamp, Uuid, uuid_v7};

/// Returns a new UUID, for a request or for a process that is about to be created.
pub fn new_uuid() -> io::Result<Uuid> {
    let mut random = [0; 10];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(uuid_v7(Timestamp::now(), random))
}
