//! How much memory this process may use: what somebody else's file claims is compared with it.

use std::path::Path;
use std::sync::OnceLock;

/// The least `memory.max` from this process's control group up (version 2).
pub(crate) fn group_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let own = root.join(group.trim());
    let up = own.ancestors().take_while(|dir| dir.starts_with(root));
    up.filter_map(|dir| std::fs::read_to_string(dir.join("memory.max")).ok()?.trim().parse().ok()).min()
}

/// Bytes of memory that this machine has, or that its group may use, whichever is less. Asked of the system once.
pub(crate) fn bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let system = rustix::system::sysinfo();
        let machine = (system.totalram as u64).saturating_mul(u64::from(system.mem_unit));
        machine.min(group_limit().unwrap_or(u64::MAX))
    })
}
