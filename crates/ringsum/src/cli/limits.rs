//! How much memory there is for a run over many files, where nobody says how much it may take.

use std::fs;
use std::path::{Component, Path, PathBuf};

use ringsum::many::PROCESS_BYTES;

/// With so much memory and more, what a run takes by itself is no matter, in bytes: 60 MiB, for a million files on
/// one device.
const PLENTY_BYTES: u64 = 512 << 20;

/// A half of what the machine has or the control group may have, in bytes, if that is little.
pub(crate) fn memory_bytes() -> Option<u64> {
    let info = rustix::system::sysinfo();
    let machine = (info.totalram as u64).saturating_mul(info.mem_unit.into());
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = least_limit(&groups, |path| fs::read_to_string(path).ok());
    let most = machine.min(group.unwrap_or(u64::MAX));
    (most < PLENTY_BYTES).then(|| (most / 2).saturating_sub(PROCESS_BYTES))
}

/// The least limit of the control groups that a process is in, by the text of `/proc/self/cgroup`, in bytes. `read`
/// gives the content of a file.
fn least_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, group) = (fields.next(), fields.next(), fields.next());
        let (root, file) = match controllers {
            Some("") => ("/sys/fs/cgroup", "memory.max"),
            Some(names) if names.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let group = Path::new(group.unwrap_or_default());
        let names = group.components().filter(|part| matches!(part, Component::Normal(_)));
        // Limits of the groups that it is in count, too. (In a container the root is often its own group.)
        let group: PathBuf = Path::new(root).components().chain(names).collect();
        let above = group.ancestors().take_while(|path| path.starts_with(root));
        let limits = above.filter_map(|path| read(&path.join(file))?.trim().parse::<u64>().ok());
        limits.collect()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_all_groups_counts() {
        let read = |path: &Path| match path.to_str().unwrap() {
            "/sys/fs/cgroup/a/b/memory.max" => Some("max\n".to_owned()),
            "/sys/fs/cgroup/a/memory.max" => Some("67108864\n".to_owned()),
            "/sys/fs/cgroup/memory/x/memory.limit_in_bytes" => Some("33554432\n".to_owned()),
            "/sys/fs/cgroup/memory/memory.limit_in_bytes" => Some("9223372036854771712".to_owned()),
            _ => None,
        };
        let cases = [
            ("0::/a/b\n", Some(64 << 20)),
            ("0::/a/b/c", Some(64 << 20)),
            ("0::/", None),
            ("0::/../a/b", Some(64 << 20)),
            ("8:pids:/a\n4:memory:/x\n0::/\n", Some(32 << 20)),
            ("4:cpu,memory:/\n0::/a\n", Some(64 << 20)),
            ("", None),
            ("0\n:\n4:memory", Some(9_223_372_036_854_771_712)),
        ];
        for (groups, limit) in cases {
            assert_eq!(least_limit(groups, read), limit, "{groups:?}");
        }
    }
}
