//! Fuzz tests for decoders that are private to their crate. Programs in `fuzz/` can call only public items. Therefore
//! these decoders run in ordinary tests. A test runs a decoder with the committed inputs (seeds) in
//! `fuzz/seeds/TARGET`, and then for some seconds with random mutations of these inputs.

use std::panic::{RefUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Environment variable with the number of seconds for which each target runs with mutations. The default is
/// 60 if `TRIVIUM_SOAK` is set, and 2 otherwise.
const SECONDS: &str = "TRIVIUM_FUZZ_SECONDS";
/// Environment variable with the seed of the random number generator.
const SEED: &str = "TRIVIUM_SEED";
/// Maximum number of edits that one mutation makes to an input.
const EDITS: u64 = 4;
/// Maximum length of an input in octets.
const LONGEST: usize = 1 << 16;

/// Returns the seed of the random number generator for a test: the number in `TRIVIUM_SEED`, or else a number that
/// differs between runs. The function prints the number. The test harness shows the output of failed tests.
///
/// # Panics
/// Panics if `TRIVIUM_SEED` is not a number.
pub fn seed() -> u64 {
    let given = std::env::var(SEED).ok();
    let seed = given.map_or_else(
        || {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |time| time.subsec_nanos().into())
        },
        |text| text.parse().unwrap_or_else(|error| panic!("{SEED}={text}: {error}")),
    );
    println!("seed {seed}: {SEED}={seed} repeats it");
    seed
}

/// A pseudo-random number generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a random number below `bound`. Returns 0 if `bound` is 0.
    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }
}

/// Calls `check` with each input in `fuzz/seeds/TARGET`, and then with mutations of these inputs. `check` must panic if
/// the decoder is wrong. The function then saves the input in `fuzz/artifacts/TARGET`.
///
/// # Panics
/// Panics if there are no seeds, or if `check` panics.
pub fn mutated(target: &str, check: impl Fn(&[u8]) + RefUnwindSafe) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let seeds = seeds(&fuzz.join("seeds").join(target));
    let checked = |input: &[u8]| {
        catch_unwind(|| check(input)).unwrap_or_else(|panic| {
            let directory = fuzz.join("artifacts").join(target);
            let file = directory.join(format!("crash-{}", std::process::id()));
            let kept = std::fs::create_dir_all(&directory).and_then(|()| std::fs::write(&file, input));
            println!("the input is in {}: {kept:?}", file.display());
            resume_unwind(panic)
        })
    };
    seeds.iter().for_each(|seed| checked(seed));
    let mut random = Random(seed());
    let (begin, limit) = (Instant::now(), seconds());
    let mut inputs = 0_u64;
    while begin.elapsed() < limit {
        let mut input = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.next() % EDITS {
            edit(&mut input, &seeds, &mut random);
        }
        input.truncate(LONGEST);
        checked(&input);
        inputs += 1;
    }
    println!("{target}: {} seeds, {inputs} mutated inputs", seeds.len());
}

fn seconds() -> Duration {
    let usual = if std::env::var_os("TRIVIUM_SOAK").is_some() { 60 } else { 2 };
    Duration::from_secs(std::env::var(SECONDS).ok().and_then(|text| text.parse().ok()).unwrap_or(usual))
}

fn seeds(directory: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}: there are no seeds", directory.display());
    let read =
        |path: &PathBuf| std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    paths.iter().map(read).collect()
}

/// Changes, removes, repeats or inserts some octets of an input.
fn edit(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    const ODD: [u64; 8] = [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, u64::MAX >> 1, u64::MAX];
    let at = random.below(input.len());
    match random.below(6) {
        _ if input.is_empty() => input.extend(random.next().to_le_bytes()),
        0 => input[at] ^= 1 << random.below(8),
        1 => input[at] = random.next().to_le_bytes()[0],
        2 => {
            let wide = ODD[random.below(ODD.len())].to_be_bytes();
            let octets = &wide[8 - (1 << random.below(4))..];
            input.iter_mut().skip(at).zip(octets).for_each(|(to, from)| *to = *from);
        }
        3 => {
            let end = at + 1 + random.below(16.min(input.len() - at));
            input.drain(at..end);
        }
        4 => {
            let end = at + 1 + random.below(64.min(input.len() - at));
            let part = input[at..end].to_vec();
            input.splice(at..at, part);
        }
        _ => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len());
            let part = other[from..other.len().min(from + 1 + random.below(256))].to_vec();
            input.truncate(at);
            input.extend(part);
        }
    }
}
