//! Credits: how much may be sent, and how much may come.

/// The smallest window in bytes: less is not worth a socket.
const WINDOW_MIN: usize = 8 << 10;
/// The largest one: with less, who sends waits for whoever is to be woken.
const WINDOW_MAX: usize = 512 << 10;
/// A new socket gets this part of what is left.
const PART: usize = 64;
/// The other end is told of room once it is this part of the window: to be told wakes it up.
const TOLD_PART: u32 = 2;
/// Bytes that a datagram counts beside its own, for what is kept with it.
const DATAGRAM_OVERHEAD: usize = 64;
/// Longest datagram in bytes.
pub const DATAGRAM_MAX: usize = 64 << 10;

/// What a datagram of so many bytes counts; it is shorter than 64 KiB.
pub fn datagram_cost(len: usize) -> u32 {
    (len + DATAGRAM_OVERHEAD) as u32
}

/// Memory for the windows of all sockets, in bytes.
pub struct Budget(usize);

impl Budget {
    /// So many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(bytes)
    }

    /// The window of another socket; `None` if no memory is left for one.
    pub fn window(&mut self) -> Option<u32> {
        let window = (self.0 / PART).clamp(WINDOW_MIN, WINDOW_MAX);
        self.0 = self.0.checked_sub(window)?;
        Some(window as u32)
    }

    /// Takes so many bytes beside windows; `false` if less is left.
    #[must_use]
    pub fn take(&mut self, bytes: u32) -> bool {
        let left = self.0.checked_sub(bytes as usize);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }

    /// A socket is gone, and its window, or what it had beside that.
    pub fn give_back(&mut self, bytes: u32) {
        self.0 += bytes as usize;
    }
}

/// Bytes that may come.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    size: u32,
    /// Of which the other end knows.
    left: u32,
    /// That were taken since it was told.
    owed: u32,
    /// What the other end is to have room for, once all that it has sent was taken.
    piece: u32,
}

impl Window {
    /// All of it, of a connection.
    pub fn new(size: u32) -> Self {
        Self {
            size,
            left: size,
            owed: 0,
            piece: 1,
        }
    }

    /// All of it, of what takes datagrams, which are sent whole.
    pub fn of_datagrams(size: u32) -> Self {
        Self {
            piece: datagram_cost(DATAGRAM_MAX),
            ..Self::new(size)
        }
    }

    /// How many bytes it has.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// So many have come; `false` if that is more than there is room for.
    #[must_use]
    pub fn came(&mut self, count: u32) -> bool {
        let left = self.left.checked_sub(count);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// So many of those were taken; of how much room the other end is to be told, if of any.
    pub fn taken(&mut self, count: u32) -> Option<u32> {
        self.owed += count;
        // Who waits for room for its next piece would wait for ever.
        let is_short = self.left + self.owed == self.size && self.left < self.piece;
        (is_short || self.owed >= self.size / TOLD_PART).then(|| self.renew())
    }

    /// The other end is told of all the room that there is; how much it does not know of.
    pub fn renew(&mut self) -> u32 {
        self.left += self.owed;
        core::mem::take(&mut self.owed)
    }

    /// For how many bytes there is room, as far as the other end knows.
    pub fn left(&self) -> u32 {
        self.left
    }
}

/// Bytes that may be sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credit {
    window: u32,
    left: u32,
}

impl Credit {
    /// All of a window.
    pub fn new(window: u32) -> Self {
        let left = window;
        Self { window, left }
    }

    /// So much of a window as is `left`; `None` if that is more.
    pub fn part(window: u32, left: u32) -> Option<Self> {
        (left <= window).then_some(Self { window, left })
    }

    /// How many bytes may be sent.
    pub fn left(&self) -> usize {
        self.left as usize
    }

    /// Whether so many bytes may ever be sent in one piece.
    pub fn holds(&self, count: u32) -> bool {
        count <= self.window
    }

    /// So many were sent, no more than [`Self::left`].
    pub fn spend(&mut self, count: u32) {
        self.left = self.left.saturating_sub(count);
    }

    /// The other end has room for so many more; `false` if that is beyond its window.
    #[must_use]
    pub fn give(&mut self, count: u32) -> bool {
        let left = self.left.checked_add(count);
        let left = left.filter(|left| *left <= self.window);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_take_no_more_than_the_budget() {
        let mut budget = Budget::new(4 << 20);
        let mut windows = std::vec::Vec::new();
        while let Some(window) = budget.window() {
            windows.push(window);
        }
        let sum: usize = windows.iter().map(|window| *window as usize).sum();
        assert!(sum <= 4 << 20 && sum > (4 << 20) - WINDOW_MIN);
        assert!(windows.len() > 100 && windows.is_sorted_by(|a, b| a >= b));
        windows
            .drain(..)
            .for_each(|window| budget.give_back(window));
        assert_eq!(budget.window(), Some(64 << 10));
        assert!(!budget.take(4 << 20) && budget.take(3 << 20));
    }

    #[test]
    fn no_byte_comes_for_which_there_is_no_room() {
        let mut window = Window::new(1000);
        assert!(window.came(1000) && !window.came(1));
        assert_eq!((window.taken(400), window.taken(100)), (None, Some(500)));
        assert!(window.came(500) && !window.came(1));
    }

    #[test]
    fn the_longest_datagram_never_waits_for_ever() {
        // All that was sent is taken: whatever fits into the window may be sent.
        for size in [8 << 10, 64 << 10, 100_000, 512 << 10] {
            let mut window = Window::of_datagrams(size);
            for cost in [100, 3000, 7000, 100, 65_599, 5000, 60_000] {
                let cost = size.min(cost);
                assert!(window.came(cost), "{size} {cost}");
                let _ = window.taken(cost);
                assert!(window.left() >= size.min(datagram_cost(DATAGRAM_MAX)));
            }
        }
    }

    #[test]
    fn credit_does_not_exceed_the_window() {
        let mut credit = Credit::new(100);
        credit.spend(60);
        assert!(credit.give(60) && !credit.give(1) && !credit.give(u32::MAX));
        assert_eq!(credit.left(), 100);
        assert!(credit.holds(100) && !credit.holds(101));
    }
}
