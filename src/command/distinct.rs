//! The fields that one command names, each once.

use std::collections::HashMap;

/// Up to this many names are compared one by one; above, a map finds them.
const LINEAR_MAX: usize = 16;

/// Distinct names in the order in which they first came, numbered from 0.
#[derive(Debug)]
pub struct Distinct<'a> {
    names: Vec<&'a [u8]>,
    /// Name to number, only when many names were announced. The hasher is seeded at random, so
    /// that nobody can choose names that collide; its order is never looked at.
    map: Option<HashMap<&'a [u8], usize>>,
}

impl<'a> Distinct<'a> {
    /// `capacity` is the most names that will be put in.
    pub fn with_capacity(capacity: usize) -> Distinct<'a> {
        let map = (capacity > LINEAR_MAX).then(|| HashMap::with_capacity(capacity));
        Distinct { names: Vec::with_capacity(capacity), map }
    }

    pub fn collect(names: impl ExactSizeIterator<Item = &'a [u8]>) -> Distinct<'a> {
        let mut distinct = Distinct::with_capacity(names.len());
        names.for_each(|name| {
            distinct.number(name);
        });
        distinct
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub fn names(&self) -> &[&'a [u8]] {
        &self.names
    }

    pub fn find(&self, name: &[u8]) -> Option<usize> {
        match &self.map {
            Some(map) => map.get(name).copied(),
            None => self.names.iter().position(|&seen| seen == name),
        }
    }

    /// The number of a name, which is put in when it is new.
    pub fn number(&mut self, name: &'a [u8]) -> usize {
        if let Some(number) = self.find(name) {
            return number;
        }
        let number = self.names.len();
        self.names.push(name);
        if let Some(map) = &mut self.map {
            map.insert(name, number);
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::{Distinct, LINEAR_MAX};

    #[test]
    fn few_and_many_names_are_numbered_alike() {
        let texts: Vec<String> = (0..LINEAR_MAX + 1).map(|n| format!("f{}", n / 2)).collect();
        for len in [LINEAR_MAX, LINEAR_MAX + 1] {
            let distinct = Distinct::collect(texts[..len].iter().map(|text| text.as_bytes()));
            assert_eq!(distinct.len(), len.div_ceil(2));
            assert_eq!(distinct.find(b"f3"), Some(3));
            assert_eq!(distinct.find(b"f99"), None);
            assert_eq!(distinct.names()[7], b"f7");
        }
    }
}
