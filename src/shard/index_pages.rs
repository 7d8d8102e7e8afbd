//! Tables that grow without a pause.

/// A growing array that is never copied: pages of `PAGE_LEN` items, a power of two.
#[derive(Debug)]
pub struct Pages<T, const PAGE_LEN: usize> {
    pages: Vec<Box<[T; PAGE_LEN]>>,
    len: usize,
}

impl<T, const PAGE_LEN: usize> Default for Pages<T, PAGE_LEN> {
    fn default() -> Pages<T, PAGE_LEN> {
        Pages { pages: Vec::new(), len: 0 }
    }
}

impl<T: Default, const PAGE_LEN: usize> Pages<T, PAGE_LEN> {
    #[inline]
    pub fn get(&self, at: usize) -> &T {
        &self.pages[at / PAGE_LEN][at % PAGE_LEN]
    }

    #[inline]
    pub fn get_mut(&mut self, at: usize) -> &mut T {
        &mut self.pages[at / PAGE_LEN][at % PAGE_LEN]
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds a default item.
    pub fn grow(&mut self) {
        if self.len == self.pages.len() * PAGE_LEN {
            self.pages.push(Box::new(std::array::from_fn(|_| T::default())));
        }
        self.len += 1;
    }

    /// Removes the last item.
    pub fn shrink(&mut self) {
        self.len -= 1;
        *self.get_mut(self.len) = T::default();
        self.pages.truncate(self.len.div_ceil(PAGE_LEN));
    }

    pub fn memory_bytes(&self) -> usize {
        let page_bytes = PAGE_LEN * size_of::<T>();
        self.pages.len() * page_bytes + self.pages.capacity() * size_of::<Box<[T; PAGE_LEN]>>()
    }
}

#[cfg(test)]
mod tests {
    use super::Pages;

    #[test]
    fn pages_grow_and_shrink() {
        let mut pages = Pages::<u32, 4>::default();
        for n in 0..10 {
            pages.grow();
            *pages.get_mut(n) = n as u32;
        }
        let full = pages.memory_bytes();
        for n in (4..10).rev() {
            assert_eq!(*pages.get(n), n as u32);
            pages.shrink();
            assert_eq!(pages.len(), n);
        }
        assert_eq!(full - pages.memory_bytes(), 2 * 16);
        pages.grow();
        assert_eq!(*pages.get(4), 0);
    }
}
