//! Devices that are damaged, missing, foreign, or of an earlier version of the format.

use super::{
    Bench, Contents, Geometry, Kind, Media, Rig, RigOptions, SEGMENT_SIZE_BYTES, SimDisk,
    StartError, geometry, options, start,
};
use crate::shard::superblock::{COPIES_AT, SUPERBLOCK_BYTES, Superblock};

/// A set with one sealed and one unsealed segment, on a device that is not running.
fn two_segments() -> (Vec<Geometry>, Vec<Media>, Contents) {
    let geometry = geometry(&[12], 512, false);
    let disk = SimDisk::new(&geometry, 18);
    let mut bench = Bench::new(&disk, options(1), 18);
    for i in 0..40 {
        bench.put(format!("key{i}").as_bytes(), &vec![i; 250_000], None).unwrap();
        bench.rig.turn(0);
    }
    // The filler behind the second group says that the first was durable.
    for key in [b"one", b"two"] {
        bench.put(key, b"value", None).unwrap();
        bench.rig.shards[0].request_sync();
        bench.rig.settle();
    }
    let contents = bench.rig.contents();
    (geometry, disk.media(), contents)
}

/// What a start says when bytes of the first device are other than they were.
fn start_damaged(
    (geometry, media, _): &(Vec<Geometry>, Vec<Media>, Contents),
    offset: u64,
    salvage: bool,
) -> Result<Rig, StartError> {
    let disk = SimDisk::with_media(geometry, media.clone(), 1);
    let byte = disk.peek(0, offset, 1)[0];
    disk.poke(0, offset, &[!byte]);
    Rig::start(&disk, RigOptions { salvage, ..options(1) })
}

#[test]
fn a_damaged_footer_costs_time_and_no_data() {
    let set = two_segments();
    let segment_end = 2 * SEGMENT_SIZE_BYTES;
    for offset in [segment_end - 64 - 17, segment_end - 64, segment_end - 1] {
        let mut rig = start_damaged(&set, offset, false).unwrap_or_else(|_| panic!("no start"));
        assert!(rig.contents() == set.2, "{offset}");
    }
}

#[test]
fn damage_to_what_was_durable_stops_the_start_and_is_named() {
    let set = two_segments();
    let unsealed = 2 * SEGMENT_SIZE_BYTES;
    let damage = |offset| match start_damaged(&set, offset, false) {
        Err(StartError::Damage(damage)) => damage.to_string(),
        Err(StartError::Open(error)) => error.to_string(),
        Ok(_) => panic!("damage at {offset} was not found"),
    };
    assert_eq!(
        damage(unsealed + 5000),
        "sim0: the segment at offset 16777216: the record at 512 in it is damaged"
    );
    assert_eq!(
        damage(unsealed + 20),
        "sim0: the segment header at offset 16777216 is damaged: its checksum is wrong"
    );
    assert_eq!(
        damage(5 * SEGMENT_SIZE_BYTES),
        "sim0: the segment header at offset 41943040 is damaged: it is not one"
    );
}

#[test]
fn a_sealed_segment_vouches_for_the_one_before_it() {
    let geometry = geometry(&[12], 512, false);
    let disk = SimDisk::new(&geometry, 26);
    let mut bench = Bench::new(&disk, options(1), 26);
    for i in 0..40 {
        bench.put(format!("key{i}").as_bytes(), &vec![i; 410_000], None).unwrap();
        bench.rig.turn(0);
    }
    bench.rig.shards[0].seal_for_shutdown();
    bench.rig.settle();
    // The first of two segments loses its trailer and its last record, which was not complete
    // when the second was opened.
    disk.poke(0, 2 * SEGMENT_SIZE_BYTES - 1, &[0xee]);
    disk.poke(0, SEGMENT_SIZE_BYTES + 19 * 410_032 + 1000, &[0xee; 8]);
    match Rig::start(&disk, options(1)) {
        Err(StartError::Damage(damage)) => assert_eq!(
            damage.to_string(),
            "sim0: the segment at offset 16777216: records before it have been lost"
        ),
        _ => panic!("the loss was not found"),
    }
}

#[test]
fn salvage_keeps_what_can_be_read() {
    let set = two_segments();
    let mut rig = start_damaged(&set, 2 * SEGMENT_SIZE_BYTES + 600_000, true)
        .unwrap_or_else(|_| panic!("no start"));
    let found = rig.contents();
    assert!(found.iter().all(|(key, value)| set.2.get(key) == Some(value)));
    assert_eq!(found.len(), 35, "33 in the sealed segment, two before the damage");
    assert!(rig.notes.iter().any(|note| note.contains("left out")), "{:?}", rig.notes);
}

pub(super) fn refusal(disk: &SimDisk) -> String {
    match Rig::start(disk, options(1)) {
        Err(StartError::Open(error)) => error.to_string(),
        Err(StartError::Damage(damage)) => panic!("{damage}"),
        Ok(_) => panic!("it was opened"),
    }
}

#[test]
fn either_superblock_is_enough() {
    let set = two_segments();
    for copy in [0, 1 << 20] {
        let mut rig = start_damaged(&set, copy + 100, false).unwrap_or_else(|_| panic!("no start"));
        assert!(rig.contents() == set.2);
        let note = format!("sim0: the superblock at offset {copy} was damaged and is replaced");
        assert_eq!(rig.notes[0], note);
        // The next start finds both whole.
        drop(rig.shards);
        assert_eq!(start(&rig.disk, options(1)).notes.len(), 0);
    }
    let disk = SimDisk::with_media(&set.0, set.1.clone(), 1);
    disk.poke(0, 100, b"damage");
    disk.poke(0, (1 << 20) + 100, b"damage");
    assert!(refusal(&disk).starts_with("both superblocks of sim0 are damaged"));
}

#[test]
fn what_is_not_ours_is_refused_and_left_alone() {
    for offset in [0, 1080, 512 << 10, (1 << 20) + 8191] {
        let disk = SimDisk::new(&geometry(&[12], 512, false), 19);
        disk.poke(0, offset, b"x");
        let text = refusal(&disk);
        assert!(text.starts_with("sim0 is not empty and not a Lavik device"), "{text}");
        assert_eq!((disk.written_bytes(), disk.peek(0, offset, 1)[0]), (0, b'x'));
    }
    let small = SimDisk::new(&geometry(&[9], 512, false), 19);
    assert_eq!(refusal(&small), "sim0 has 75497472 bytes; at least 83886080 are needed");
}

#[test]
fn only_the_complete_set_is_opened_in_any_order() {
    let three = geometry(&[12, 13, 14], 512, false);
    let disk = SimDisk::new(&three, 20);
    let mut bench = Bench::new(&disk, options(1), 20);
    for i in 0..80 {
        bench.put(format!("key{i}").as_bytes(), &vec![i; 500_000], None).unwrap();
        (0..4).for_each(|_| bench.rig.turn(0));
    }
    bench.rig.shards[0].request_sync();
    bench.rig.settle();
    let contents = bench.rig.contents();
    let media = disk.media();
    let pick = |devices: &[usize]| {
        let geometry: Vec<_> = devices.iter().map(|&i| three[i].clone()).collect();
        let media = devices.iter().map(|&i| media[i].clone()).collect();
        SimDisk::with_media(&geometry, media, 1)
    };
    assert!(start(&pick(&[2, 0, 1]), options(1)).contents() == contents);
    assert_eq!(
        refusal(&pick(&[0, 2])),
        "member 2 of the 3 devices of the set is missing (sim0 belongs to it); give all of them"
    );
    assert_eq!(
        refusal(&pick(&[0, 1, 2, 1])),
        "sim1 and sim1 are the same member of the set; give it once"
    );
    let mut shrunk = three.clone();
    shrunk[2].size_bytes -= 1;
    let text = refusal(&SimDisk::with_media(&shrunk, media.clone(), 1));
    assert!(text.starts_with("sim2 has 117440511 bytes, but had 117440512"), "{text}");
}

#[test]
fn members_of_other_sets_are_refused() {
    let one = geometry(&[12], 512, false);
    let (a, b) = (SimDisk::new(&one, 21), SimDisk::new(&one, 22));
    start(&a, options(1));
    start(&b, options(1));
    let two = geometry(&[12, 12], 512, false);
    let both = SimDisk::with_media(&two, vec![a.media().remove(0), b.media().remove(0)], 1);
    let text = refusal(&both);
    assert_eq!(text, "sim0 and sim1 belong to different sets; give one set only");
}

#[test]
fn an_old_copy_of_a_member_is_refused() {
    let two = geometry(&[12, 12], 512, false);
    let disk = SimDisk::new(&two, 27);
    start(&disk, options(1));
    let old = disk.media();
    start(&disk, options(1));
    let mixed = || {
        let media = vec![disk.media().remove(0), old[1].clone()];
        SimDisk::with_media(&two, media, 1)
    };
    let text = refusal(&mixed());
    assert_eq!(text, "sim1 is older than the rest of its set, as run 1 left it");
    let salvaged = Rig::start(&mixed(), RigOptions { salvage: true, ..options(1) });
    let salvaged = salvaged.unwrap_or_else(|_| panic!("no start"));
    assert_eq!(salvaged.notes[0], text);
}

#[test]
fn a_set_formatted_for_small_sectors_is_refused_on_large_ones() {
    let disk = SimDisk::new(&geometry(&[12], 512, false), 23);
    start(&disk, options(1));
    let coarse = disk.with_sector_size(4096);
    let text = refusal(&coarse);
    assert!(
        text.starts_with("sim0 has sectors of 4096 bytes, but the set was formatted"),
        "{text}"
    );
}

/// One record of every form, in a sealed and in an unsealed segment. The result is the same in
/// every run.
fn golden_set() -> (Rig, Contents) {
    let disk = SimDisk::new(&geometry(&[10], 512, false), 25);
    let mut bench = Bench::new(&disk, options(1), 25);
    bench.put(b"short", b"value", None).unwrap();
    bench.put(b"expiring", b"value", Some(4_102_444_800_000)).unwrap();
    bench.put(b"", b"", None).unwrap();
    bench.put(&[0; 5000], b"long key", None).unwrap();
    bench.put(b"large value", &[0; 70_000], Some(4_102_444_800_000)).unwrap();
    bench.rig.shards[0].request_sync();
    bench.rig.settle();
    bench.delete(b"short").unwrap();
    let unit: Vec<Vec<u8>> = (0..3).map(|i| format!("unit{i}").into_bytes()).collect();
    bench.put(b"unit1", b"to be deleted", None).unwrap();
    bench.unit(&unit, b"of one command").unwrap();
    let hash = bench.rig.home(b"stream").1;
    bench.rig.shards[0].put(15, &hash, b"stream", Kind::Stream, b"entries", None).unwrap();
    bench.rig.shards[0].seal_for_shutdown();
    bench.rig.settle();
    bench.put(b"unsealed", b"value", None).unwrap();
    bench.delete(b"expiring").unwrap();
    bench.rig.shards[0].request_sync();
    bench.rig.settle();
    let contents = bench.rig.contents();
    (bench.rig, contents)
}

/// The image in the repository is read, and what this program writes is still the same. After a
/// wanted change of the format (a new version, a new image): `LAVIK_WRITE_GOLDEN=1 cargo test`.
#[test]
fn the_format_is_that_of_the_golden_image() {
    let (rig, contents) = golden_set();
    let text = rig.disk.media()[0].to_text();
    if std::env::var_os("LAVIK_WRITE_GOLDEN").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/format-1.hex"), &text)
            .unwrap();
    }
    let golden = include_str!("../../../tests/golden/format-1.hex");
    assert!(text == golden, "the format has changed");
    let media = Media::from_text(golden, 512).expect("an image");
    let mut from_image =
        start(&SimDisk::with_media(&rig.disk_geometry(), vec![media], 1), options(2));
    assert!(from_image.contents() == contents);
    let keys: Vec<(u8, &[u8])> = contents.keys().map(|(db, key)| (*db, &key[..])).collect();
    let expected: [(u8, &[u8]); 7] = [
        (0, b""),
        (0, &[0; 5000]),
        (0, b"large value"),
        (0, b"unit0"),
        (0, b"unit2"),
        (0, b"unsealed"),
        (15, b"stream"),
    ];
    assert_eq!(keys, expected);
}

/// An epoch would begin to repeat, and records of earlier lives would be believed.
#[test]
fn a_set_that_has_been_opened_too_often_is_refused() {
    let (geometry, media, _) = two_segments();
    let disk = SimDisk::with_media(&geometry, media, 1);
    for at in COPIES_AT {
        let mut copy = disk.peek(0, at, SUPERBLOCK_BYTES);
        let mut superblock = Superblock::decode(&copy).unwrap();
        superblock.state.run = (1 << 24) - 1;
        superblock.encode(&mut copy);
        for (sector, bytes) in (at / 512..).zip(copy.chunks(512)) {
            disk.poke(0, sector * 512, bytes);
        }
    }
    let written = disk.written_bytes();
    assert!(refusal(&disk).starts_with("the set has been opened 16777215 times"));
    assert_eq!(disk.written_bytes(), written);
}
