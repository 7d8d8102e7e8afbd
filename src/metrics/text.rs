//! Prometheus's text format. Every name gets the prefix `lavik_`.

use std::fmt::{Display, Write};

/// Collects samples, those of one family together.
#[derive(Debug, Default)]
pub struct Text {
    out: String,
}

impl Text {
    /// Announces a family of samples; `kind` is `counter` or `gauge`.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.append(format_args!("# HELP lavik_{name} {help}\n# TYPE lavik_{name} {kind}\n"));
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        match labels.is_empty() {
            true => self.append(format_args!("lavik_{name} {value}\n")),
            false => self.append(format_args!("lavik_{name}{{{}}} {value}\n", labels.join(","))),
        }
    }

    /// A family of one sample, which only grows.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }

    /// A family of one sample, which goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    pub fn finish(self) -> String {
        self.out
    }

    fn append(&mut self, piece: std::fmt::Arguments<'_>) {
        // Writing into a String cannot fail.
        let _ = self.out.write_fmt(piece);
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn families_and_labels() {
        let mut text = Text::default();
        text.gauge("up", "Whether it runs.", 1);
        text.family("space_bytes", "gauge", "Space.");
        text.sample("space_bytes", &[("device", "0"), ("path", "a\\b\"c\nd")], 7);
        assert_eq!(
            text.finish(),
            "# HELP lavik_up Whether it runs.\n# TYPE lavik_up gauge\nlavik_up 1\n\
             # HELP lavik_space_bytes Space.\n# TYPE lavik_space_bytes gauge\n\
             lavik_space_bytes{device=\"0\",path=\"a\\\\b\\\"c\\nd\"} 7\n"
        );
    }
}
