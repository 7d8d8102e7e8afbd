//! Blank devices that join a set, and power cuts meanwhile.

use super::media::refusal;
use super::{
    Bench, BufPool, Contents, Cut, Geometry, Life, Lsn, Media, Rig, RigOptions, SimDisk, SimRandom,
    StartError, geometry, options, start, start_in,
};
use crate::disk::{Counts, Disk, Done, Errno, Io};
use crate::shard::open::{OpenError, OpenOptions, open};
use crate::shard::superblock::{COPIES_AT, SUPERBLOCK_BYTES};
use crate::shard::table::Tier;
use crate::testing::disk::SimPort;

const CUTS: [Cut; 4] = [Cut::Nothing, Cut::Everything, Cut::Writes, Cut::Sectors];

/// Devices as a power cut leaves them.
type Image = Vec<Media>;

/// A port that watches a start, and may meddle with it.
struct Probe {
    disk: SimDisk,
    port: SimPort,
    random: SimRandom,
    events: u64,
    /// What a power cut would leave after each event; `None`: not wanted.
    images: Option<Vec<Image>>,
    /// Completions that succeed. After them the process is as good as killed: a start writes no
    /// further. What it has written may be in a volatile cache.
    left: u32,
    /// The last device is another name of the one before it.
    alias: bool,
}

impl Probe {
    fn new(disk: &SimDisk) -> Probe {
        let (port, random) = (disk.port(), SimRandom::new(disk.draw()));
        let (events, images) = (u64::MAX, None);
        Probe { disk: disk.clone(), port, random, events, images, left: u32::MAX, alias: false }
    }

    fn record(&mut self) {
        let Some(images) = &mut self.images else { return };
        if self.events != self.disk.events() {
            self.events = self.disk.events();
            images.extend(CUTS.map(|cut| self.disk.power_cut(cut, &mut self.random)));
        }
    }

    fn start(&mut self, pool: &BufPool) -> Result<(), OpenError> {
        self.record();
        let mut secret = SimRandom::new(self.disk.draw());
        let open_options = OpenOptions { cores: 1, salvage: false };
        open(self, pool, open_options, &mut |bytes| secret.fill(bytes)).map(|_| ())
    }
}

impl Disk for Probe {
    fn submit(&mut self, mut io: Io) -> Result<(), Io> {
        let last = self.geometry().len() as u16 - 1;
        io.device -= u16::from(self.alias && io.device == last);
        self.port.submit(io)?;
        self.record();
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        let before = done.len();
        self.port.poll(done);
        for done in &mut done[before..] {
            match self.left.checked_sub(1) {
                Some(left) => self.left = left,
                None => done.result = Err(Errno(libc::EIO)),
            }
        }
        self.record();
    }

    fn geometry(&self) -> &[Geometry] {
        self.port.geometry()
    }

    fn in_flight(&self) -> usize {
        self.port.in_flight()
    }

    fn is_busy(&self) -> bool {
        self.port.is_busy()
    }

    fn counts(&self) -> Counts {
        self.port.counts()
    }
}

/// What a power cut at each step of a start would leave.
fn images_of_start(
    geometry: &[Geometry],
    image: &Image,
    pool: &BufPool,
    random: &mut SimRandom,
) -> Vec<Image> {
    let disk = SimDisk::with_media(geometry, image.clone(), random.draw());
    images_of_start_on(&disk, pool)
}

fn images_of_start_on(disk: &SimDisk, pool: &BufPool) -> Vec<Image> {
    let mut probe = Probe { images: Some(Vec::new()), ..Probe::new(disk) };
    probe.start(pool).unwrap_or_else(|error| panic!("{error}"));
    probe.images.take().unwrap_or_default()
}

/// A set with something in it, and what: on devices of so many segments.
fn filled(segments: &[u64]) -> (Image, Contents) {
    let disk = SimDisk::new(&geometry(segments, 512, true), 31);
    let mut bench = Bench::new(&disk, options(1), 31);
    (0..100).for_each(|_| bench.step(20, 100_000));
    bench.rig.shards[0].request_sync();
    bench.rig.settle();
    let contents = bench.rig.contents();
    (bench.rig.disk.media(), contents)
}

#[test]
fn blank_devices_join_a_set_and_give_it_their_room() {
    let (mut image, contents) = filled(&[12]);
    let three = geometry(&[12, 14, 13], 512, true);
    image.extend([Media::default(), Media::default()]);
    let disk = SimDisk::with_media(&three, image, 1);
    let mut rig = start(&disk, options(1));
    assert_eq!(rig.joined, ["sim1", "sim2"]);
    assert!(!rig.formatted && rig.contents() == contents);
    assert_eq!(rig.segments.usage().segments, 11 + 13 + 12);
    drop(rig);
    // More than the first device holds.
    let mut bench = Bench::new(&disk, options(1), 32);
    for i in 0..150 {
        bench.put(format!("more{i}").as_bytes(), &vec![i; 1_000_000], None).unwrap();
        (0..8).for_each(|_| bench.turns(1));
    }
    bench.rig.shards[0].request_sync();
    bench.rig.settle();
    let contents = bench.rig.contents();
    assert_eq!(contents.len() - 150, bench.model.start.len());
    // In any order, from then on as all members always were.
    let turned = [2, 0, 1].map(|i: usize| three[i].clone());
    let media = disk.media();
    let again = SimDisk::with_media(&turned, [2, 0, 1].map(|i: usize| media[i].clone()).into(), 2);
    let mut rig = start(&again, options(2));
    assert!(rig.joined.is_empty() && rig.contents() == contents);
    let pair = SimDisk::with_media(&three[..2], media[..2].to_vec(), 3);
    assert_eq!(
        refusal(&pair),
        "member 3 of the 3 devices of the set is missing (sim0 belongs to it); give all of them"
    );
}

/// Free segments of each device after so many have been taken.
fn free_after(rig: &Rig, taken: u32) -> Vec<u32> {
    for _ in 0..taken {
        rig.segments.allocate(0, Lsn(1), Tier::Put).expect("a free segment");
    }
    let devices = rig.segments.info().devices.iter();
    let is_free = |n: &u32| rig.segments.life(*n) == Life::Free;
    devices.map(|d| (d.first..d.first + d.segments).filter(is_free).count() as u32).collect()
}

#[test]
fn devices_fill_up_together_whatever_their_sizes() {
    let disk = SimDisk::new(&geometry(&[11, 31, 21], 512, false), 37);
    let rig = start(&disk, options(1));
    // A tenth of each, then half of each.
    assert_eq!(free_after(&rig, 6), [9, 27, 18]);
    assert_eq!(free_after(&rig, 24), [5, 15, 10]);
}

#[test]
fn a_blank_device_does_not_stand_in_for_a_missing_one() {
    let (image, _) = filled(&[12, 12]);
    let two = geometry(&[12, 12], 512, true);
    let disk = SimDisk::with_media(&two, vec![image[0].clone(), Media::default()], 1);
    let before = disk.written_bytes();
    assert_eq!(
        refusal(&disk),
        "member 2 of the 2 devices of the set is missing (sim0 belongs to it); give all of them; \
         sim1 is empty and cannot stand in for it"
    );
    assert_eq!(disk.written_bytes(), before);
}

#[test]
fn what_cannot_join_is_refused_and_left_alone() {
    let (mut image, _) = filled(&[12]);
    image.push(Media::default());
    let disk = SimDisk::with_media(&geometry(&[12, 12], 512, true), image.clone(), 1);
    match Rig::start(&disk, RigOptions { salvage: true, ..options(1) }) {
        Err(StartError::Open(error)) => assert_eq!(
            error.to_string(),
            "sim1 is empty; nothing is added to a set that is being salvaged"
        ),
        _ => panic!("it was opened"),
    }
    let mut coarse = geometry(&[12, 12], 512, true);
    coarse[1].sector_size = 4096;
    let coarse = SimDisk::with_media(&coarse, image, 1);
    assert_eq!(
        refusal(&coarse),
        "sim1 has sectors of 4096 bytes, but the set was formatted for 512; use a device with \
         sectors of at most 512 bytes"
    );
    assert_eq!((disk.written_bytes(), coarse.written_bytes()), (0, 0));
}

/// Opens an image with all devices, and with those of before only. Whether the latter works, that
/// is, the new one was not yet a member.
fn check(image: &Image, contents: &Contents, all: &[Geometry], pool: &BufPool) -> bool {
    let disk = SimDisk::with_media(all, image.clone(), 5);
    let mut rig = start_in(&disk, options(1), pool);
    assert!(rig.contents() == *contents);
    assert_eq!(rig.segments.usage().segments, 10 + 11 + 9);
    let joined = rig.joined.clone();
    let old = SimDisk::with_media(&all[..2], image[..2].to_vec(), 6);
    match Rig::start_in(&old, options(1), pool) {
        Ok(mut rig) => {
            assert!(rig.contents() == *contents);
            assert_eq!(joined, ["sim2"]);
            true
        }
        Err(StartError::Open(error)) => {
            let text = error.to_string();
            assert!(text.starts_with("member 3 of the 3 devices of the set is missing"), "{text}");
            assert!(joined.is_empty());
            false
        }
        Err(StartError::Damage(damage)) => panic!("{damage}"),
    }
}

#[test]
fn a_power_cut_at_any_step_of_an_extension_loses_nothing() {
    let all = geometry(&[11, 12, 10], 512, true);
    let (mut image, contents) = filled(&[11, 12]);
    image.push(Media::default());
    let pool = BufPool::new(32 << 20, 0).unwrap();
    let mut random = SimRandom::new(33);
    let images = images_of_start(&all, &image, &pool, &mut random);
    assert!(images.len() > 100, "{}", images.len());
    let mut without = 0;
    for (i, image) in images.iter().enumerate() {
        without += usize::from(check(image, &contents, &all, &pool));
        // And a second cut, in the start that follows.
        if i % 3 == 0 {
            let again = images_of_start(&all, image, &pool, &mut random);
            check(&again[random.below(again.len())], &contents, &all, &pool);
        }
    }
    assert!(0 < without && without < images.len(), "{without} of {}", images.len());
}

/// A device that was formatted, never written to, and then given to somebody else.
#[test]
fn a_fresh_member_with_other_bytes_in_front_is_refused() {
    for (at, bytes) in
        [(1080, b"\x53\xef".as_slice()), (0, b"XFSB"), (510, b"\x55\xaa"), (8192, b"x")]
    {
        let disk = SimDisk::new(&geometry(&[12], 512, false), 36);
        start(&disk, options(1));
        disk.poke(0, 0, &[0; 8]);
        disk.poke(0, 1 << 20, &[0; 8]);
        disk.poke(0, at, bytes);
        let before = disk.written_bytes();
        let text = refusal(&disk);
        assert!(text.starts_with("sim0 is not empty and not a Lavik device"), "{text}");
        assert_eq!(disk.written_bytes(), before);
    }
}

#[test]
fn a_power_cut_at_any_step_of_a_format_leaves_devices_that_start() {
    let two = geometry(&[10, 11], 512, true);
    let pool = BufPool::new(32 << 20, 0).unwrap();
    let mut random = SimRandom::new(34);
    let blank = vec![Media::default(), Media::default()];
    for image in images_of_start(&two, &blank, &pool, &mut random) {
        let disk = SimDisk::with_media(&two, image, 7);
        assert!(start_in(&disk, options(1), &pool).contents().is_empty());
    }
}

#[test]
fn power_cuts_in_start_after_start_leave_no_member_behind() {
    let two = geometry(&[11, 12], 512, true);
    let (image, contents) = filled(&[11, 12]);
    let pool = BufPool::new(32 << 20, 0).unwrap();
    let mut random = SimRandom::new(35);
    for _ in 0..40 {
        let mut image = image.clone();
        for _ in 0..4 {
            let mut images = images_of_start(&two, &image, &pool, &mut random);
            image = images.swap_remove(random.below(images.len()));
        }
        let disk = SimDisk::with_media(&two, image, 8);
        assert!(start_in(&disk, options(1), &pool).contents() == contents);
    }
}

/// What the first start has written is in the devices' caches only when the second one reads it.
#[test]
fn a_power_cut_in_the_start_after_a_killed_one_loses_nothing() {
    let pool = BufPool::new(32 << 20, 0).unwrap();
    let mut random = SimRandom::new(38);
    for (old, new) in [(vec![11, 12], None), (vec![11], Some(10)), (vec![11], None)] {
        let (mut image, contents) = filled(&old);
        image.extend(new.map(|_| Media::default()));
        let all: Vec<u64> = old.iter().copied().chain(new).collect();
        let all = geometry(&all, 512, true);
        let mut killed = 0;
        for left in 0..80 {
            let disk = SimDisk::with_media(&all, image.clone(), random.draw());
            let first = Probe { left, ..Probe::new(&disk) }.start(&pool);
            killed += u32::from(first.is_err());
            let images = images_of_start_on(&disk, &pool);
            for image in images.iter().skip(random.below(5)).step_by(5) {
                let disk = SimDisk::with_media(&all, image.clone(), 9);
                assert!(start_in(&disk, options(1), &pool).contents() == contents);
            }
        }
        assert!(killed > 10, "{killed}");
    }
}

/// Between its last two steps an extension has left the new member with run 0. It is no leftover of
/// a format, even next to a blank device in place of the other.
#[test]
fn a_new_member_is_not_formatted_over() {
    let two = geometry(&[11, 12], 512, false);
    let (mut image, contents) = filled(&[11]);
    image.push(Media::default());
    let pool = BufPool::new(32 << 20, 0).unwrap();
    let mut random = SimRandom::new(39);
    let mut seen = 0;
    for image in images_of_start(&two, &image, &pool, &mut random) {
        let without = SimDisk::with_media(&two, vec![Media::default(), image[1].clone()], 1);
        let Err(StartError::Open(error)) = Rig::start_in(&without, options(1), &pool) else {
            // Blank, or on its way into a set that does not know it and can do without.
            let alone = SimDisk::with_media(&two[..1], image[..1].to_vec(), 2);
            assert!(start_in(&alone, options(1), &pool).contents() == contents);
            continue;
        };
        assert_eq!(without.written_bytes(), 0, "{error}");
        let disk = SimDisk::with_media(&two, image, 2);
        let mut rig = start_in(&disk, options(1), &pool);
        assert!(rig.contents() == contents);
        seen += u32::from(rig.joined.is_empty());
    }
    assert!(seen > 0);
}

/// Nothing is added to a set that would not start without it.
#[test]
fn a_damaged_set_is_not_extended() {
    let (image, _) = filled(&[12]);
    let alone = SimDisk::with_media(&geometry(&[12], 512, true), image, 1);
    alone.poke(0, (5 << 23) + 20, &[0xee; 2]);
    let text = refusal(&alone);
    assert_eq!(
        text,
        "sim0: the segment header at offset 41943040 is damaged: its checksum is wrong"
    );
    let mut image = alone.media();
    image.push(Media::default());
    let both = SimDisk::with_media(&geometry(&[12, 12], 512, true), image, 2);
    assert_eq!(refusal(&both), text);
    // The old one is as it was, and the new one still blank.
    let media = both.media();
    let alone = SimDisk::with_media(&geometry(&[12], 512, true), media[..1].to_vec(), 3);
    let salvaged = Rig::start(&alone, RigOptions { salvage: true, ..options(1) });
    assert!(salvaged.is_ok_and(|rig| rig.segments.usage().segments == 11));
}

/// Two names of one new device would be two members on the same segments.
#[test]
fn a_device_under_two_names_does_not_join() {
    let (mut image, contents) = filled(&[12]);
    image.extend([Media::default(), Media::default()]);
    let three = geometry(&[12, 11, 11], 512, true);
    let disk = SimDisk::with_media(&three, image, 1);
    let pool = BufPool::new(32 << 20, 0).unwrap();
    let refused = Probe { alias: true, ..Probe::new(&disk) }.start(&pool);
    assert_eq!(
        refused.map_err(|error| error.to_string()),
        Err("sim1 lost a segment header (it belongs to another place); is it given under two \
             names?"
            .to_string())
    );
    // The set is as it was, and the device is as new.
    let two = SimDisk::with_media(&three[..2], disk.media()[..2].to_vec(), 2);
    let mut rig = start(&two, options(1));
    assert_eq!(rig.joined, ["sim1"]);
    assert!(rig.contents() == contents);
}

/// A later program has begun to convert the set.
#[test]
fn a_copy_of_an_unknown_version_is_not_replaced() {
    for at in COPIES_AT {
        let (image, _) = filled(&[12]);
        let disk = SimDisk::with_media(&geometry(&[12], 512, true), image, 1);
        let mut copy = disk.peek(0, at, SUPERBLOCK_BYTES);
        copy[8] = 2;
        let crc = crc32c::crc32c(&copy[..SUPERBLOCK_BYTES - 4]);
        copy[SUPERBLOCK_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        for (i, sector) in copy.chunks(512).enumerate() {
            disk.poke(0, at + 512 * i as u64, sector);
        }
        assert_eq!(
            refusal(&disk),
            "sim0 has format version 2, which this program does not know; use the program that \
             wrote it"
        );
        assert_eq!(disk.written_bytes(), 0);
    }
}

/// Somebody has made a file system, or swap, on a device whose other superblock is whole.
#[test]
fn what_was_written_over_one_superblock_is_not_replaced_unasked() {
    for (at, other) in [(0, 1_usize), (1 << 20, 0)] {
        let (image, contents) = filled(&[12]);
        let disk = SimDisk::with_media(&geometry(&[12], 512, true), image, 1);
        disk.poke(0, at, b"not ours");
        assert_eq!(
            refusal(&disk),
            format!(
                "sim0: something else was written over the superblock at offset {at}; if the \
                 device is ours alone, --recover=salvage replaces it by the other one"
            )
        );
        assert_eq!((disk.written_bytes(), disk.peek(0, at, 8)), (0, b"not ours".to_vec()));
        let salvaged = Rig::start(&disk, RigOptions { salvage: true, ..options(1) });
        let mut salvaged = salvaged.unwrap_or_else(|_| panic!("no start, copy {other}"));
        assert!(salvaged.contents() == contents);
    }
}
