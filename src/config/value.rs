//! Values as text: how each kind of value is read and shown. Error texts are Redis's where it
//! has the same kind of value; the caller puts the option's name in front.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    pub addr: IpAddr,
    /// Written with a leading `-`: no error when the machine does not have the address.
    pub optional: bool,
}

impl Bind {
    pub fn required(addr: IpAddr) -> Bind {
        Bind { addr, optional: false }
    }

    /// An IP address, `*` (any IPv4) or `::*` (any IPv6), with a `-` in front if optional.
    pub fn parse(text: &str) -> Result<Bind, String> {
        let (optional, bare) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let addr = match bare {
            "*" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            "::*" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => bare.parse().map_err(|_| format!("'{text}' is not an IP address"))?,
        };
        Ok(Bind { addr, optional })
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.optional { "-" } else { "" };
        match self.addr {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => write!(f, "{mark}*"),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => write!(f, "{mark}::*"),
            addr => write!(f, "{mark}{addr}"),
        }
    }
}

/// Address of a PCI function, `DDDD:BB:DD.F`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PciAddress {
    pub domain: u32,
    pub bus: u8,
    pub device: u8,
    pub function: u8,
}

impl PciAddress {
    pub fn parse(text: &str) -> Option<PciAddress> {
        let (domain, rest) = text.split_once(':')?;
        let (bus, rest) = rest.split_once(':')?;
        let (device, function) = rest.split_once('.')?;
        let address = PciAddress {
            domain: hex(domain, 4..=8)?,
            bus: hex(bus, 2..=2)? as u8,
            device: hex(device, 2..=2)? as u8,
            function: hex(function, 1..=1)? as u8,
        };
        (address.device < 32 && address.function < 8).then_some(address)
    }
}

/// Hexadecimal digits without sign or prefix, as many as `digits` allows.
fn hex(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let plain = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

/// One member of the device set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DataFile {
    /// A regular file or a block device.
    Path(PathBuf),
    /// A namespace of an NVMe controller that SPDK drives: `spdk://CONTROLLER/NSID`.
    Spdk { controller: Controller, nsid: u32 },
}

/// The forms of a device that SPDK drives, for messages.
const SPDK_FORMS: &str = "spdk://DDDD:BB:DD.F/NSID or spdk://tcp:ADDR:PORT/SUBNQN/NSID";

/// Where SPDK finds an NVMe controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Controller {
    /// `DDDD:BB:DD.F`
    Pci(PciAddress),
    /// `tcp:ADDR:PORT/SUBNQN`
    Tcp { address: SocketAddr, subnqn: String },
}

impl Controller {
    fn parse(text: &str) -> Option<Controller> {
        let Some(target) = text.strip_prefix("tcp:") else {
            return PciAddress::parse(text).map(Controller::Pci);
        };
        let (address, subnqn) = target.split_once('/')?;
        let address = address.parse().ok()?;
        // The longest name that NVMe over fabrics allows; a space would end it for SPDK.
        let fits = subnqn.starts_with("nqn.") && subnqn.len() <= 223;
        let plain = subnqn.bytes().all(|b| b.is_ascii_graphic());
        (fits && plain).then(|| Controller::Tcp { address, subnqn: subnqn.to_string() })
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Controller::Pci(address) => address.fmt(f),
            Controller::Tcp { address, subnqn } => write!(f, "tcp:{address}/{subnqn}"),
        }
    }
}

impl DataFile {
    pub fn parse(text: &str) -> Result<DataFile, String> {
        let Some(place) = text.strip_prefix("spdk://") else {
            return match text {
                "" => Err("must not be empty".into()),
                _ => Ok(DataFile::Path(PathBuf::from(text))),
            };
        };
        let parts = place.rsplit_once('/').and_then(|(controller, nsid)| {
            let digits = nsid.bytes().all(|b| b.is_ascii_digit());
            let nsid = nsid.parse::<u32>().ok().filter(|&n| digits && n > 0)?;
            Some(DataFile::Spdk { controller: Controller::parse(controller)?, nsid })
        });
        parts.ok_or_else(|| format!("'{text}' is not of the form {SPDK_FORMS}"))
    }
}

impl fmt::Display for DataFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataFile::Path(path) => write!(f, "{}", path.display()),
            DataFile::Spdk { controller, nsid } => write!(f, "spdk://{controller}/{nsid}"),
        }
    }
}

/// A limit given in bytes or as a share of `maxmemory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryShare {
    /// 0 = no limit.
    Bytes(u64),
    Percent(u8),
}

impl MemoryShare {
    pub fn parse(text: &str) -> Result<MemoryShare, String> {
        match text.strip_suffix('%') {
            Some(number) => match integer::<u8>(number, 0, 100) {
                Ok(percent) => Ok(MemoryShare::Percent(percent)),
                Err(_) => Err("percentage argument must be less or equal to 100".into()),
            },
            None => Ok(MemoryShare::Bytes(size(text)?)),
        }
    }

    /// The limit in bytes; 0 = none.
    pub fn bytes(&self, maxmemory_bytes: u64) -> u64 {
        match *self {
            MemoryShare::Bytes(bytes) => bytes,
            MemoryShare::Percent(percent) => maxmemory_bytes / 100 * u64::from(percent),
        }
    }
}

impl fmt::Display for MemoryShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryShare::Bytes(bytes) => write!(f, "{bytes}"),
            MemoryShare::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// A whole number from `min` to `max`.
pub fn integer<T: TryFrom<i64>>(text: &str, min: i64, max: i64) -> Result<T, String> {
    let number: i64 =
        text.parse().map_err(|_| "argument couldn't be parsed into an integer".to_string())?;
    let inside = (min..=max).contains(&number);
    inside
        .then(|| T::try_from(number).ok())
        .flatten()
        .ok_or_else(|| format!("argument must be between {min} and {max} inclusive"))
}

/// The value of the name `text`.
pub fn choice<T: Copy>(text: &str, names: &[(&str, T)]) -> Result<T, String> {
    let found = names.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|&(_, value)| value).ok_or_else(|| not_one_of(names.iter().map(|&(name, _)| name)))
}

/// The name of a value of [`choice`].
pub fn show_choice<T: Copy + PartialEq>(value: T, names: &[(&str, T)]) -> String {
    names.iter().find(|entry| entry.1 == value).map_or("", |entry| entry.0).to_string()
}

/// `text` as it is spelled in `names`.
pub fn one_of(text: &str, names: &[&'static str]) -> Result<&'static str, String> {
    let found = names.iter().copied().find(|name| name.eq_ignore_ascii_case(text));
    found.ok_or_else(|| not_one_of(names.iter().copied()))
}

fn not_one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    format!("argument(s) must be one of the following: {}", names.join(", "))
}

/// A number of bytes with an optional unit: `k`, `m`, `g`, `t` are powers of 1000; with a `b`
/// or `ib` behind they are powers of 1024, as in redis.conf.
pub fn size(text: &str) -> Result<u64, String> {
    let fault = || "argument must be a memory value".to_string();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_bytes: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" | "kib" => 1 << 10,
        "m" => 1_000_000,
        "mb" | "mib" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" | "gib" => 1 << 30,
        "t" => 1_000_000_000_000,
        "tb" | "tib" => 1 << 40,
        _ => return Err(fault()),
    };
    number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit_bytes)).ok_or_else(fault)
}

/// `yes` or `no`.
pub fn yes_no(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("argument must be 'yes' or 'no'".into()),
    }
}

/// The text of a boolean in CONFIG GET and in the file.
pub fn show_yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_string()
}

/// CPUs as `0-3,8`, in the order given; none twice.
pub fn cpu_list(text: &str) -> Result<Vec<usize>, String> {
    let fault = || format!("'{text}' is not a CPU list such as 0-3,8");
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u16 = integer(first, 0, CPU_MAX).map_err(|_| fault())?;
        let last: u16 = integer(last, first.into(), CPU_MAX).map_err(|_| fault())?;
        cpus.extend((first..=last).map(usize::from));
    }
    let repeated = (1..cpus.len()).find(|&at| cpus[..at].contains(&cpus[at]));
    match repeated {
        Some(at) => Err(format!("CPU {} is listed twice", cpus[at])),
        None => Ok(cpus),
    }
}

/// Highest CPU number that the kernel's default affinity masks can name.
const CPU_MAX: i64 = 1023;

/// A CPU list in its short form.
pub fn show_cpu_list(cpus: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let show = |(first, last): (usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.into_iter().map(show).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::{
        Bind, DataFile, MemoryShare, SPDK_FORMS, choice, cpu_list, integer, show_cpu_list, size,
        yes_no,
    };

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("10b", 10),
            ("1k", 1000),
            ("1kb", 1024),
            ("512mb", 512 << 20),
            ("1gb", 1 << 30),
            ("1GiB", 1 << 30),
            ("2G", 2_000_000_000),
            ("3TB", 3 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "mb", "-1", "+1", "1.5gb", "1 gb", "1gx", "18446744073709551616", "16777216tb"]
        {
            assert_eq!(size(text), Err("argument must be a memory value".into()), "{text}");
        }
    }

    #[test]
    fn integers() {
        assert_eq!(integer::<u8>("255", 0, 255), Ok(255));
        assert_eq!(integer::<i64>("-1", -1, i64::MAX), Ok(-1));
        let outside = "argument must be between 1 and 10 inclusive";
        assert_eq!(integer::<u8>("11", 1, 10), Err(outside.into()));
        let garbage = "argument couldn't be parsed into an integer";
        for text in ["", "x", "1x", "0x10", "1.0", "9223372036854775808"] {
            assert_eq!(integer::<i64>(text, 0, i64::MAX), Err(garbage.into()), "{text}");
        }
    }

    #[test]
    fn words() {
        assert_eq!(yes_no("YES"), Ok(true));
        assert_eq!(yes_no("no"), Ok(false));
        assert_eq!(yes_no("1"), Err("argument must be 'yes' or 'no'".into()));
        assert_eq!(choice("B", &[("a", 1), ("b", 2)]), Ok(2));
        let list = "argument(s) must be one of the following: a, b";
        assert_eq!(choice("c", &[("a", 1), ("b", 2)]), Err(list.into()));
    }

    #[test]
    fn shares_of_memory() {
        assert_eq!(MemoryShare::parse("5%").map(|share| share.bytes(1000)), Ok(50));
        assert_eq!(MemoryShare::parse("1mb").map(|share| share.bytes(1000)), Ok(1 << 20));
        let fault = "percentage argument must be less or equal to 100";
        assert_eq!(MemoryShare::parse("101%"), Err(fault.into()));
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(cpu_list("0-3,8"), Ok(vec![0, 1, 2, 3, 8]));
        assert_eq!(cpu_list("5,4"), Ok(vec![5, 4]));
        assert_eq!(cpu_list("0-2,1"), Err("CPU 1 is listed twice".into()));
        for text in ["", "a", "3-1", "1-", "-1", "0,,1", "0-99999"] {
            let fault = format!("'{text}' is not a CPU list such as 0-3,8");
            assert_eq!(cpu_list(text), Err(fault));
        }
        assert_eq!(show_cpu_list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(show_cpu_list(&[]), "");
    }

    #[test]
    fn addresses_to_bind() {
        let shown = |text: &str| {
            Bind::parse(text).map(|bind| (bind.addr.to_string(), bind.optional, bind.to_string()))
        };
        assert_eq!(shown("*"), Ok(("0.0.0.0".into(), false, "*".into())));
        assert_eq!(shown("-::1"), Ok(("::1".into(), true, "-::1".into())));
        assert_eq!(shown("-::*"), Ok(("::".into(), true, "-::*".into())));
        assert_eq!(shown("10.0.0.1"), Ok(("10.0.0.1".into(), false, "10.0.0.1".into())));
        assert_eq!(shown("localhost"), Err("'localhost' is not an IP address".into()));
    }

    #[test]
    fn data_files() {
        let shown = |text: &str| DataFile::parse(text).map(|file| file.to_string());
        assert_eq!(shown("/dev/nvme0n1"), Ok("/dev/nvme0n1".into()));
        assert_eq!(shown("spdk://2401:0A:1f.7/1"), Ok("spdk://2401:0a:1f.7/1".into()));
        for place in ["", "0000:00:00.0", "0000:00:00.0/0", "0000:00:00.8/1", "0000:00:20.0/1"] {
            let text = format!("spdk://{place}");
            let fault = format!("'{text}' is not of the form {SPDK_FORMS}");
            assert_eq!(shown(&text), Err(fault));
        }
        assert!(shown("spdk://0000:00:0.0/1").is_err());
        assert_eq!(shown(""), Err("must not be empty".into()));
    }
}
