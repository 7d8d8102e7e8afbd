//! Facts of the machine that belong to every figure.

use crate::json::Json;
use std::fs::read_to_string;

/// One machine, as a report names it.
#[derive(Clone, Debug)]
pub struct Host {
    pub kernel: String,
    pub cpu_model: String,
    pub cpus: usize,
    pub congestion_control: String,
}

impl Host {
    pub fn read() -> Host {
        let line = |path: &str| {
            read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().to_string())
        };
        let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
        Host {
            kernel: line("/proc/sys/kernel/osrelease"),
            cpu_model: cpu_model(&cpuinfo).unwrap_or("unknown").to_string(),
            cpus: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            congestion_control: line("/proc/sys/net/ipv4/tcp_congestion_control"),
        }
    }

    pub fn print(&self) {
        println!(
            "host: kernel {}, {} x {}, TCP {}",
            self.kernel, self.cpus, self.cpu_model, self.congestion_control
        );
    }

    pub fn json(&self) -> Json {
        Json::Object(vec![
            ("kernel", self.kernel.as_str().into()),
            ("cpu_model", self.cpu_model.as_str().into()),
            ("cpus", (self.cpus as u64).into()),
            ("congestion_control", self.congestion_control.as_str().into()),
        ])
    }
}

fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim())
}

#[cfg(test)]
mod tests {
    use super::cpu_model;

    #[test]
    fn the_model_is_behind_the_colon() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nprocessor\t: 1\n";
        assert_eq!(cpu_model(text), Some("Some CPU @ 2 GHz"));
        assert_eq!(cpu_model(""), None);
    }
}
