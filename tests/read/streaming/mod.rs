//! Streams: workers of a run get equal, disjoint and complete shares; prefetching changes nothing; a slow worker
//! follows the others; a saved state resumes exactly; a run can be replayed.

mod ahead;
mod equal;
mod replay;
mod resume;
mod slow;
