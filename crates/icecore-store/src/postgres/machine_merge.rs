//! Machines share a space by connecting to its database, so there is nothing to merge.

use super::Space;
use crate::MachineMerge;

impl MachineMerge for Space {}
