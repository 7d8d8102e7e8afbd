//! What can be seen to be wrong before SPDK is asked, from files of the kernel alone: no device is
//! touched, and the error says what mends it.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::controller::Address;

/// How long a target may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Drivers that hand a PCI device to a process.
const DRIVERS: &[&str] = &["vfio-pci", "uio_pci_generic", "igb_uio"];
/// PCI class code of an NVMe controller.
const NVME_CLASS: &str = "0x010802";

/// Looks at the place where a controller should be.
pub fn check_address(address: &Address) -> Result<(), String> {
    match address {
        Address::Pci(pci) => check_pci(Path::new("/sys/bus/pci/devices"), pci, &mounts()),
        Address::Tcp { address: socket, .. } => {
            let connected = TcpStream::connect_timeout(socket, CONNECT_TIMEOUT);
            connected.map(|_| ()).map_err(|error| format!("{address}: {error}"))
        }
    }
}

fn mounts() -> String {
    fs::read_to_string("/proc/mounts").unwrap_or_default()
}

fn check_pci(devices: &Path, pci: &str, mounts: &str) -> Result<(), String> {
    let device = devices.join(pci);
    if !device.exists() {
        return Err(format!("spdk://{pci}: there is no such PCI device"));
    }
    let class = fs::read_to_string(device.join("class")).unwrap_or_default();
    if class.trim() != NVME_CLASS {
        return Err(format!("spdk://{pci}: it is no NVMe controller (class {})", class.trim()));
    }
    if let Some((disk, place)) = mounted(&device, mounts) {
        return Err(format!("spdk://{pci}: the kernel has mounted its {disk} on {place}"));
    }
    let driver = fs::read_link(device.join("driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    match driver {
        Some(name) if DRIVERS.contains(&name) => check_iommu(&device, pci, name),
        other => Err(format!(
            "spdk://{pci}: its driver is {}, not vfio-pci: echo vfio-pci > \
             {device}/driver_override; echo {pci} > {device}/driver/unbind; \
             echo {pci} > /sys/bus/pci/drivers_probe",
            other.unwrap_or("none"),
            device = device.display(),
        )),
    }
}

fn check_iommu(device: &Path, pci: &str, driver: &str) -> Result<(), String> {
    if driver == "vfio-pci" && !device.join("iommu_group").exists() {
        return Err(format!(
            "spdk://{pci}: it is in no IOMMU group: start the kernel with intel_iommu=on (or \
             amd_iommu=on), or use uio_pci_generic"
        ));
    }
    Ok(())
}

/// A disk of the controller that is mounted, and where.
fn mounted(device: &Path, mounts: &str) -> Option<(String, String)> {
    let names = |folder: PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    let controllers = names(device.join("nvme"));
    let disks = controllers.flat_map(|name| names(device.join("nvme").join(name)));
    for disk in disks.filter(|disk| disk.starts_with("nvme")) {
        for line in mounts.lines() {
            let mut words = line.split(' ');
            let (Some(what), Some(place)) = (words.next(), words.next()) else { continue };
            if what.strip_prefix("/dev/").is_some_and(|name| name.starts_with(&disk)) {
                return Some((disk, place.to_string()));
            }
        }
    }
    None
}

/// Whether the machine has `needed_mib` of free hugepages that we may use.
pub fn check_hugepages(needed_mib: u64) -> Result<(), String> {
    let free_mib = free_hugepages_mib(Path::new("/sys/kernel/mm/hugepages"));
    if free_mib < needed_mib {
        return Err(format!(
            "storage spdk needs {needed_mib} MiB of hugepages, {free_mib} MiB are free: \
             sysctl -w vm.nr_hugepages={}",
            needed_mib.div_ceil(2)
        ));
    }
    let mounts = mounts();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("hugetlbfs"));
    let Some(folder) = mount.and_then(|line| line.split(' ').nth(1)) else {
        return Err("storage spdk needs hugetlbfs: mkdir -p /dev/hugepages; \
                    mount -t hugetlbfs nodev /dev/hugepages"
            .into());
    };
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).map_err(|_| {
        format!("storage spdk may not write to {folder}: run as root, or give it to this user")
    })
}

fn free_hugepages_mib(sizes: &Path) -> u64 {
    let entries = fs::read_dir(sizes).into_iter().flatten().flatten();
    let size_mib = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let free = fs::read_to_string(path.join("free_hugepages")).ok()?;
        Some((free.trim().parse::<u64>().ok()? * kib) >> 10)
    };
    entries.filter_map(|entry| size_mib(entry.path())).sum()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use super::{check_pci, free_hugepages_mib};

    struct Sysfs(PathBuf);

    impl Sysfs {
        fn new(name: &str) -> Sysfs {
            let root = std::env::temp_dir().join(format!("lavik-{name}-{}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            Sysfs(root)
        }

        fn device(&self, pci: &str, class: &str, driver: Option<&str>) -> PathBuf {
            let device = self.0.join(pci);
            fs::create_dir_all(device.join("nvme/nvme3/nvme3n1")).unwrap();
            fs::write(device.join("class"), format!("{class}\n")).unwrap();
            if let Some(driver) = driver {
                symlink(Path::new("../../drivers").join(driver), device.join("driver")).unwrap();
            }
            device
        }
    }

    impl Drop for Sysfs {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn pci_devices_that_cannot_be_used_say_why() {
        let sysfs = Sysfs::new("pci");
        sysfs.device("0000:00:01.0", "0x020000", Some("e1000"));
        sysfs.device("0000:00:02.0", "0x010802", Some("nvme"));
        sysfs.device("0000:00:03.0", "0x010802", Some("vfio-pci"));
        let good = sysfs.device("0000:00:04.0", "0x010802", Some("vfio-pci"));
        fs::create_dir(good.join("iommu_group")).unwrap();
        let fault = |pci, mounts| check_pci(&sysfs.0, pci, mounts).err().unwrap_or_default();
        assert_eq!(fault("0000:00:09.0", ""), "spdk://0000:00:09.0: there is no such PCI device");
        let class = "spdk://0000:00:01.0: it is no NVMe controller (class 0x020000)";
        assert_eq!(fault("0000:00:01.0", ""), class);
        let mounted = "spdk://0000:00:02.0: the kernel has mounted its nvme3n1 on /data";
        assert_eq!(fault("0000:00:02.0", "/dev/nvme3n1p1 /data ext4 rw 0 0\n"), mounted);
        assert!(fault("0000:00:02.0", "").contains("its driver is nvme, not vfio-pci: echo"));
        assert!(fault("0000:00:03.0", "").contains("it is in no IOMMU group"));
        assert_eq!(check_pci(&sysfs.0, "0000:00:04.0", ""), Ok(()));
    }

    #[test]
    fn hugepages_of_all_sizes_count() {
        let sysfs = Sysfs::new("huge");
        for (size, free) in [("hugepages-2048kB", "10"), ("hugepages-1048576kB", "1")] {
            fs::create_dir(sysfs.0.join(size)).unwrap();
            fs::write(sysfs.0.join(size).join("free_hugepages"), format!("{free}\n")).unwrap();
        }
        assert_eq!(free_hugepages_mib(&sysfs.0), 20 + 1024);
        assert_eq!(free_hugepages_mib(Path::new("/nowhere")), 0);
    }
}
