//! Resuming from a state, in another process, with the same or another number of workers.

use ringreel::read::checkpoint::State;
use ringreel::read::shard::{Equal, Share};
use ringreel::{Error, Ring, Stream, StreamOptions};
use std::collections::BTreeMap;
use testkit::stream::{Dice, Got, MODES, World, decide, drain, next, one, take, worker};

/// Samples in each generation, from generation 1 on.
const SIZES: [u64; 4] = [7, 1, 30, 53];

fn place() -> World {
    let place = World::new("SWAP_CAP: 60\nSEGMENT_SAMPLES: 8\nKEEP: 9\n");
    let mut first = 0;
    for size in SIZES {
        place.generation(first..first + size);
        first += size;
    }
    place
}

/// Options of a run of three epochs, over random generations.
fn any_run(dice: &mut Dice, ring: &Ring, name: &str, workers: u64) -> StreamOptions {
    let generations: Vec<u64> = (0..3).map(|_| 1 + dice.below(SIZES.len() as u64)).collect();
    decide(ring, name, &generations, workers);
    StreamOptions {
        run: Some(name.to_owned()),
        equal: dice.one_of(&MODES),
        shuffle: dice.yes(),
        seed: dice.below(3),
        prefetch_bytes: dice.one_of(&[0, 0, 1, 100, 1 << 20]),
        threads: 1 + dice.below(3) as usize,
        epochs: Some(3),
        ..worker(0, 1)
    }
}

fn of(options: &StreamOptions, rank: u64, world: u64) -> StreamOptions {
    StreamOptions { share: Share::new(rank, world).unwrap(), ..options.clone() }
}

/// The state after a round trip through JSON, as a caller saves it.
fn saved(stream: &Stream) -> State {
    let state = stream.state();
    let again: State = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
    assert_eq!(again, state);
    again
}

#[test]
fn resumed_streams_continue_exactly_after_the_state() {
    let place = place();
    let (ring, mut dice) = (place.ring(), Dice(1));
    let mut at_ends = 0;
    for case in 0..200 {
        let world = dice.one_of(&[1, 1, 2, 3, 5, 8]);
        let options = any_run(&mut dice, &ring, &format!("run-{case}"), world);
        let options = of(&options, dice.below(world), world);
        let all = drain(&mut place.stream(options.clone()));
        // The end of an epoch, or any other position.
        let ends: Vec<usize> =
            (1..all.len()).filter(|n| all[*n].epoch != all[n - 1].epoch).chain([all.len()]).collect();
        let cut = if dice.yes() { dice.one_of(&ends) } else { dice.below(all.len() as u64 + 1) as usize };
        at_ends += u32::from(ends.contains(&cut));
        let mut stream = place.stream(options.clone());
        assert_eq!(take(&mut stream, cut), all[..cut]);
        let state = saved(&stream);
        if dice.yes() {
            drop(stream); // ends the stream
        }
        let prefetch_bytes = dice.one_of(&[0, 1, 1 << 20]);
        let mut stream = place.stream(StreamOptions { prefetch_bytes, ..options.clone() });
        if dice.yes() {
            take(&mut stream, dice.below(9) as usize); // moves the stream to another position
        }
        stream.load(&state).unwrap();
        assert_eq!(stream.state(), state, "saving a resumed state changes it");
        assert_eq!(drain(&mut stream), all[cut..], "case {case}: {cut} of {}, {options:?}", all.len());
        assert_eq!(stream.epochs(), 3, "case {case}");
    }
    assert!(at_ends > 50, "{at_ends}");
}

/// Counts how often each position of one epoch was read.
fn counted(got: &[Got], epoch: u64) -> BTreeMap<u64, u32> {
    let mut counts = BTreeMap::new();
    for got in got.iter().filter(|got| got.epoch == epoch && !got.is_padding) {
        *counts.entry(got.position).or_default() += 1;
    }
    counts
}

/// Runs `world` workers from these states, or from the beginning, for a number of steps within the first epoch. Returns
/// what they read, and their states.
fn go(
    place: &World,
    options: &StreamOptions,
    samples: u64,
    states: &[State],
    world: u64,
    steps: &[u64],
) -> (Vec<Got>, Vec<State>) {
    let (mut all, mut ends) = (Vec::new(), Vec::new());
    for rank in 0..world {
        let mut stream = place.stream(of(options, rank, world));
        load(&mut stream, states);
        let state = stream.state();
        let left = state.epoch.as_ref().map_or(samples, |epoch| state.place.left(epoch.samples));
        let here =
            Share::new(rank, world).unwrap().equal_steps(if state.number == 0 { left } else { 0 }, options.equal);
        let here = here.saturating_sub(state.step);
        all.extend(take(&mut stream, here.min(steps[rank as usize % steps.len()]) as usize));
        ends.push(saved(&stream));
    }
    (all, ends)
}

fn load(stream: &mut Stream, states: &[State]) {
    match states {
        [] => {}
        [state] => stream.load(state).unwrap(),
        states => stream.load_all(states).unwrap(),
    }
}

/// Returns what each of `world` workers reads up to the end.
fn finish(place: &World, options: &StreamOptions, states: &[State], world: u64) -> Vec<Got> {
    let rank = |rank| {
        let mut stream = place.stream(of(options, rank, world));
        load(&mut stream, states);
        drain(&mut stream)
    };
    (0..world).flat_map(rank).collect()
}

/// Checks one epoch. `spare`: how many samples equal steps may omit or repeat at most.
fn is_complete(got: &[Got], epoch: u64, samples: u64, equal: Equal, spare: u64, what: &str) {
    let counts = counted(got, epoch);
    let (once, total) = (counts.values().all(|count| *count == 1), counts.values().map(|n| u64::from(*n)).sum::<u64>());
    let all = counts.len() as u64 == samples;
    match equal {
        Equal::No | Equal::Pad => assert!(once && all, "{what}, epoch {epoch}: {counts:?}"),
        Equal::Drop => assert!(once && samples - total <= spare, "{what}, epoch {epoch}: {counts:?}"),
        Equal::Wrap => assert!(all && total - samples <= spare, "{what}, epoch {epoch}: {counts:?}"),
    }
}

#[test]
fn states_resume_with_another_number_of_workers() {
    let place = place();
    let (ring, mut dice) = (place.ring(), Dice(2));
    for case in 0..200 {
        let worlds = [0; 3].map(|_| dice.one_of(&[1, 2, 3, 4, 6, 9]));
        let name = format!("run-{case}");
        let options = any_run(&mut dice, &ring, &name, worlds[0]);
        let generations: Vec<u64> =
            ring.run(&name).unwrap().epochs().unwrap().iter().map(|(_, epoch)| epoch.generation).collect();
        let size = |k: u64| SIZES[generations[k as usize] as usize - 1];
        let even = dice.yes();
        let steps = |dice: &mut Dice, world: u64| -> Vec<u64> {
            let most = size(0) / world + 2;
            let all = dice.below(most);
            (0..world).map(|_| if even { all } else { dice.below(most) }).collect()
        };
        let what = format!("case {case}: {worlds:?}, even {even}, {} samples, {options:?}", size(0));
        let (mut got, mut states) = go(&place, &options, size(0), &[], worlds[0], &steps(&mut dice, worlds[0]));
        if even && worlds[0] != worlds[1] && worlds[0] != worlds[2] {
            states.truncate(1); // one worker's state suffices
        }
        if dice.yes() {
            let (more, then) = go(&place, &options, size(0), &states, worlds[1], &steps(&mut dice, worlds[1]));
            got.extend(more);
            states = then;
        }
        let last = worlds[2];
        got.extend(finish(&place, &options, &states, last));
        is_complete(&got, 0, size(0), options.equal, worlds.iter().sum::<u64>() - 3, &what);
        for epoch in 1..3 {
            is_complete(&got, epoch, size(epoch), options.equal, last - 1, &what);
        }
        assert!(got.iter().all(|got| generations[got.epoch as usize] == got.generation), "{what}");
    }
}

#[test]
fn states_at_an_epoch_boundary_can_be_combined() {
    let place = place();
    let ring = place.ring();
    decide(&ring, "r", &[1, 3, 3], 2);
    let options = StreamOptions { run: Some("r".into()), equal: Equal::Drop, epochs: Some(3), ..worker(0, 1) };
    // Three steps of each worker read all 7 samples; the first worker has requested more, which did not exist yet.
    let (got, states) = go(&place, &options, 7, &[], 2, &[3, 3]);
    let mut first = place.stream(of(&options, 0, 2));
    first.load(&states[0]).unwrap();
    let beyond = State { epoch: None, number: 1, finished: 1, step: 0, ..states[0].clone() };
    for states in [[beyond.clone(), states[1].clone()], [states[0].clone(), beyond_of(&beyond)]] {
        let merged = State::merge(&states).unwrap();
        assert_eq!((merged.number, merged.world), if merged.epoch.is_some() { (0, 0) } else { (1, 0) });
        let rest = finish(&place, &options, &[merged], 3);
        let all: Vec<Got> = got.iter().chain(&rest).cloned().collect();
        is_complete(&all, 0, 7, Equal::Drop, 2, "the first epoch");
        is_complete(&all, 1, 30, Equal::Drop, 2, "the second epoch");
    }
    // A state within the second epoch, and another at the end of the first, can be combined.
    let ahead = {
        one(&mut first);
        saved(&first)
    };
    assert_eq!((ahead.number, ahead.step), (1, 1));
    let merged = State::merge(&[ahead.clone(), states[1].clone()]).unwrap();
    let rest = finish(&place, &options, &[merged], 3);
    let given = rest.iter().filter(|got| got.epoch == 1).count();
    assert_eq!((given, rest.iter().filter(|got| got.epoch == 0).count()), (27, 0), "29 are left");
    // Not within the first epoch, because one state cannot contain both positions.
    let (_, earlier) = go(&place, &options, 7, &[], 2, &[1]);
    let error = State::merge(&[ahead, earlier[1].clone()]).unwrap_err();
    assert!(error.to_string().contains("epoch"), "{error}");
}

fn beyond_of(state: &State) -> State {
    State { worker: 1, ..state.clone() }
}

#[test]
fn foreign_states_are_refused_and_the_mismatch_is_named() {
    let place = place();
    let other = World::new(
        "SWAP_CAP: 60
",
    );
    other.generation(0..10);
    let options = StreamOptions { seed: 3, shuffle: true, equal: Equal::Wrap, ..worker(1, 2) };
    let mut stream = place.stream(options.clone());
    take(&mut stream, 2);
    let state = saved(&stream);
    let refused = |place: &World, state: &State, options: StreamOptions, what: &str| {
        let mut stream = place.stream(options);
        let error = stream.load(state).unwrap_err();
        assert!(matches!(error, Error::Sample(_)) && error.to_string().contains(what), "{what}: {error}");
        assert!(next(&mut stream).unwrap().is_some(), "the refused state changed the stream");
    };
    let with = |change: fn(&mut StreamOptions)| {
        let mut options = options.clone();
        change(&mut options);
        options
    };
    refused(&other, &state, options.clone(), "this is ring");
    refused(&place, &state, with(|options| options.seed = 4), "this stream has seed 4");
    refused(&place, &state, with(|options| options.shuffle = false), "shuffle false");
    refused(&place, &state, with(|options| options.equal = Equal::No), "equal");
    refused(
        &place,
        &state,
        with(|options| options.share.rank = 0),
        "saved by worker 1, this is the stream of worker 0",
    );
    let later = State { version: State::VERSION + 1, ..state.clone() };
    refused(&place, &later, options.clone(), "version is 2");
    place.stream(options).load(&state).unwrap();

    let merged = |states: &[&State]| {
        let states: Vec<State> = states.iter().map(|state| (*state).clone()).collect();
        State::merge(&states).map_err(|error| error.to_string())
    };
    let first = State { worker: 0, ..state.clone() };
    assert!(merged(&[&first, &state]).is_ok());
    for (states, why) in [
        (&[][..], "empty"),
        (&[&state][..], "workers [1]"),
        (&[&first, &first], "workers [0, 0]"),
        (&[&first, &State { seed: 9, ..state.clone() }], "seed"),
        (&[&first, &State { ring: "another".into(), ..state.clone() }], "ring"),
        (&[&first, &State { world: 3, ..state.clone() }], "number of workers"),
        (&[&first, &State { number: 5, ..state.clone() }], "epoch"),
    ] {
        let error = merged(states).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[test]
fn states_before_the_first_and_after_the_last_sample_resume() {
    let place = place();
    let options = StreamOptions { epochs: Some(2), run: Some("r".into()), ..worker(0, 1) };
    let fresh = place.stream(options.clone());
    let mut stream = place.stream(options.clone());
    stream.load(&saved(&fresh)).unwrap();
    assert_eq!(drain(&mut stream).len() as u64, 2 * SIZES[3]);
    assert_eq!(next(&mut stream).unwrap(), None);
    let mut ended = place.stream(options.clone());
    ended.load(&saved(&stream)).unwrap();
    assert_eq!(next(&mut ended).unwrap(), None);
    // With more epochs, the same state is not the end.
    let mut longer = place.stream(StreamOptions { epochs: Some(3), ..options });
    longer.load(&saved(&stream)).unwrap();
    assert_eq!(drain(&mut longer).len() as u64, SIZES[3]);
}
