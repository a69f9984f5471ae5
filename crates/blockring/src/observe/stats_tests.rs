//! Statistics add up, and a recorder that is off records nothing.

use super::*;

fn stats(device_ms: u64, consumer_ms: u64) -> Stats {
    let ms = Duration::from_millis;
    Stats {
        wall: ms(1000),
        threads: 1,
        device_wait: ms(device_ms),
        consumer_wait: ms(consumer_ms),
        ..Stats::default()
    }
}

#[test]
fn runs_add_up() {
    let mut a = Stats { bytes: 5, requests: 2, in_flight: vec![1, 2], ..stats(1, 2) };
    a.latency_ns().record(1000).unwrap();
    let mut b = Stats { bytes: 7, requests: 3, in_flight: vec![0, 1, 4], ..stats(10, 20) };
    b.latency_ns().record(1 << 40).unwrap();
    a += &b;
    assert_eq!((a.bytes, a.requests, a.in_flight.clone()), (12, 5, vec![1, 3, 4]));
    assert_eq!((a.wall, a.device_wait), (Duration::from_secs(2), Duration::from_millis(11)));
    let latency = a.latency().unwrap();
    assert!(latency.p50 >= 999 && latency.p50 <= 1001, "{latency:?}");
    assert!(latency.max >= 1 << 40 && latency.p99_99 >= 1 << 40, "{latency:?}");
    assert_eq!(Stats::default().latency(), None);
}

#[test]
fn a_recording_that_is_off_keeps_nothing() {
    let recording = Recording::new(false, None);
    let mut recorder = recording.recorder("a thread", 4);
    assert!(recorder.0.is_none() && recorder.start().0.is_none());
    recorder.requested(3, 1);
    recorder.completed(3, 0, ReadOutcome::Over);
    drop(recorder);
    assert!(recording.stats().is_none());
}

#[test]
fn a_trace_is_json_with_a_row_for_each_slot() {
    use std::io::Write;
    use std::sync::Arc;
    #[derive(Clone)]
    struct Shared(Arc<Mutex<Vec<u8>>>);
    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let to = Shared(Arc::default());
    let trace = Trace::new(to.clone());
    let recording = Recording::new(false, Some(&trace));
    recording.time(Path::new("a \"name\"\nof two lines"), || {
        let mut recorder = recording.recorder("reads", 2);
        recorder.requested(1, 1);
        recorder.completed(1, 4096, ReadOutcome::Over);
        recorder.delivers(1, 4096, 0);
        let start = recorder.start();
        recorder.consumed(start, 10, true);
        recorder.freed(1, 4096, start);
        // The slot of a failed read, which no consumer got.
        recorder.freed(0, 8192, StartTime::default());
        recorder.waited(WaitFor::Read, start);
    });
    trace.finish().unwrap();
    let text = String::from_utf8(to.0.lock().unwrap().clone()).unwrap();
    let events: Vec<serde_json::Value> = serde_json::from_str(&text).expect(&text);
    let names: Vec<_> = events.iter().map(|event| event["name"].as_str().unwrap()).collect();
    for name in ["read", "ready", "consume", "consumed", "wait for a read"] {
        assert_eq!(names.iter().filter(|n| **n == name).count(), 1, "{name} in {text}");
    }
    assert!(names.contains(&"a \"name\"\nof two lines"), "{text}");
    let rows: Vec<_> = events.iter().filter_map(|e| e["args"]["name"].as_str()).collect();
    assert!(rows.iter().any(|row| row.starts_with("slot 1 of thread")), "{rows:?}");
    // Nothing comes after the end.
    assert!(trace.finish().is_err());
}
