//! Advice to the kernel to use huge pages for large tables, which avoids most TLB misses of random reads.
//!
//! Tables call these functions when they are created, not on the data path.
#![allow(unsafe_code, reason = "madvise takes an address")]

/// Returns an empty vector with capacity for `len` elements. A large vector is placed on huge pages if the
/// kernel has them, and otherwise on normal pages.
#[must_use]
pub fn vec_on_huge_pages<T>(len: usize) -> Vec<T> {
    let mut room = Vec::with_capacity(len);
    // Advise before the first touch, which decides the kind of page.
    advise_huge_pages(room.spare_capacity_mut());
    room
}

/// Advises the kernel to use huge pages for memory that has not been written yet. The advice applies to memory of 2 MiB
/// and more. The advice has no effect if the kernel has no huge pages or refuses the advice.
#[cfg(all(target_os = "linux", not(loom), not(miri)))]
pub fn advise_huge_pages<T>(room: &mut [T]) {
    use rustix::mm::{Advice, madvise};

    const HUGE_PAGE: usize = 2 << 20;
    const PAGE: usize = 4096;
    if size_of_val(room) < HUGE_PAGE {
        return;
    }
    // Advise whole pages. The outer pages may also hold other allocations, which does no harm.
    let start = room.as_mut_ptr().cast::<u8>();
    let before = start.addr() % PAGE;
    let len = (before + size_of_val(room)).next_multiple_of(PAGE);
    let start = start.wrapping_sub(before).cast();
    // SAFETY: The advice changes how the pages are backed, not their contents, and reaches no page beyond
    // those of `room`.
    let _ = unsafe { madvise(start, len, Advice::LinuxHugepage) };
}

/// Does nothing, because a program on this platform cannot request huge pages.
#[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
pub fn advise_huge_pages<T>(_room: &mut [T]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_all_without_another_allocation() {
        for len in [0, 1, 1000, (5 << 20) / 8] {
            let mut room = vec_on_huge_pages::<u64>(len);
            let start = room.as_ptr();
            room.extend(0..u64::try_from(len).unwrap());
            assert_eq!((room.len(), room.as_ptr()), (len, start));
            assert!(room.iter().copied().eq(0..u64::try_from(len).unwrap()));
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", not(loom), not(miri)))]
    fn a_large_room_is_advised() {
        let mut room = vec_on_huge_pages::<u64>((16 << 20) / 8);
        room.resize(room.capacity(), 1);
        let Ok(maps) = std::fs::read_to_string("/proc/self/smaps") else { return };
        let middle = room[room.len() / 2..].as_ptr().addr();
        // Finds the mapping that holds the address and its flags. Kernels without huge pages report no flag.
        let mut lines = maps.lines().skip_while(|line| {
            let bounds = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bound = |text| usize::from_str_radix(text, 16);
            !bounds.is_some_and(|(from, to)| {
                matches!((bound(from), bound(to)), (Ok(from), Ok(to)) if (from..to).contains(&middle))
            })
        });
        let flags = lines.find(|line| line.starts_with("VmFlags:")).unwrap();
        if std::path::Path::new("/sys/kernel/mm/transparent_hugepage/enabled").exists() {
            assert!(flags.split(' ').any(|flag| flag == "hg"), "{flags}");
        }
    }
}
