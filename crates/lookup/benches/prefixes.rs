//! Benchmarks of real routing tables: look-ups of bursts of 256 random addresses that are covered by a prefix of the
//! table, and changes of the table. `cargo bench -p lookup`

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench ends at the first surprise")]

#[path = "../tests/real/mod.rs"]
mod real;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lookup::{Address, Hop, Prefix, Table};
use sync::qsbr::Domain;

const BURST: usize = 256;
/// Number of random destination addresses that the benchmark looks up one after the other.
const ASKED: usize = 1 << 20;

/// Returns the next number of Marsaglia's xorshift64. The sequence is equal in every run.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn at(number: u64, of: usize) -> usize {
    usize::try_from(number % u64::try_from(of).unwrap()).unwrap()
}

/// Measures look-ups in one table, and changes of this table. `inside` returns the address within the given prefix that
/// the given random bits select.
fn table<A: Address>(
    c: &mut Criterion,
    name: &str,
    prefixes: &[Prefix<A>],
    words: usize,
    inside: impl Fn(Prefix<A>, u64) -> A,
) {
    let domain = Domain::new();
    let mut reader = domain.register().unwrap();
    let mut table = Table::new(&domain, words);
    let hop_of = |number: usize| Hop(u32::try_from(number % 64 + 1).unwrap());
    table.load(prefixes.iter().enumerate().map(|(number, prefix)| (*prefix, hop_of(number)))).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut asked = || {
        let prefix = prefixes[at(random(&mut state), prefixes.len())];
        inside(prefix, random(&mut state))
    };
    let addresses: Vec<A> = (0..ASKED).map(|_| asked()).collect();
    let trie = table.trie();
    let mut hops = [Hop::NONE; BURST];
    let mut group = c.benchmark_group("look-up");
    group.throughput(Throughput::Elements(BURST as u64));
    let mut bursts = addresses.chunks(BURST).cycle();
    group.bench_function(BenchmarkId::from_parameter(name), |bench| {
        bench.iter(|| trie.look_up(&reader, bursts.next().unwrap(), &mut hops));
    });
    group.finish();
    let mut group = c.benchmark_group("remove and insert");
    group.throughput(Throughput::Elements(2));
    group.bench_function(BenchmarkId::from_parameter(name), |bench| {
        bench.iter(|| {
            let number = at(random(&mut state), prefixes.len());
            table.remove(prefixes[number]).unwrap();
            table.insert(prefixes[number], hop_of(number)).unwrap();
            reader.quiescent();
        });
    });
    group.finish();
    println!("{name}: {:?}", table.usage());
}

fn prefixes(c: &mut Criterion) {
    let Some((four, six)) = real::prefixes() else { return };
    table(c, "real-v4", &four, 4 << 20, |prefix, random| {
        let host = prefix.address() ^ prefix.address().last(u32::from(prefix.length()));
        prefix.address() | (u32::try_from(random >> 32).unwrap() & host)
    });
    table(c, "real-v6", &six, 2 << 20, |prefix, random| {
        let host = prefix.address() ^ prefix.address().last(u32::from(prefix.length()));
        prefix.address() | ((u128::from(random) << 64 | u128::from(random)) & host)
    });
}

criterion_group!(benches, prefixes);
criterion_main!(benches);
