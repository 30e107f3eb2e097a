//! Streams: workers that read together get the same number of steps, disjoint and complete; reading ahead changes nothing;
//! a slow worker follows the others; a state goes on exactly there; a run can be read once more.

mod ahead;
mod equal;
mod replay;
mod resume;
mod slow;
