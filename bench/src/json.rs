//! JSON output. Reports are written, never read back, so there is no parser.

use std::fmt::{self, Display, Formatter, Write};

/// A value to print.
#[derive(Clone, Debug)]
pub enum Json {
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
    Null,
}

impl From<f64> for Json {
    fn from(value: f64) -> Json {
        if value.is_finite() { Json::Number(value) } else { Json::Null }
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Json {
        Json::Number(value as f64)
    }
}

impl From<&str> for Json {
    fn from(value: &str) -> Json {
        Json::Text(value.into())
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Json {
        value.map_or(Json::Null, Into::into)
    }
}

impl Display for Json {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Number(value) => write!(f, "{value}"),
            Json::Text(text) => write_text(text, f),
            Json::List(items) => {
                f.write_char('[')?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index > 0 { ",\n" } else { "" })?;
                }
                f.write_char(']')
            }
            Json::Object(fields) => {
                f.write_char('{')?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}\"{name}\": {value}", if index > 0 { ", " } else { "" })?;
                }
                f.write_char('}')
            }
        }
    }
}

fn write_text(text: &str, f: &mut Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::Json;

    #[test]
    fn values_print_as_json() {
        let json = Json::Object(vec![
            ("a", 1u64.into()),
            ("b", 0.5.into()),
            ("c", f64::NAN.into()),
            ("d", Json::List(vec!["x\"\\\n".into(), Json::from(None::<u64>)])),
        ]);
        let expected = "{\"a\": 1, \"b\": 0.5, \"c\": null, \"d\": [\"x\\\"\\\\\\u000a\",\nnull]}";
        assert_eq!(json.to_string(), expected);
    }
}
