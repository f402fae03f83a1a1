//! A file that gets whole blocks: one that the disk has no room for is taken out again, so that the
//! file stays one that can be read.

use std::fs::File;
use std::io::{self, ErrorKind, Write};

/// Bytes that a file gathers before it is written.
const BUFFER_BYTES: usize = 256 << 10;
/// Interrupted attempts in a row to write, after which the file counts as broken.
const INTERRUPTIONS_MAX: u32 = 64;

/// A file of blocks; each call of [`Write::write`] brings one.
pub struct BlockFile {
    file: File,
    buffer: Vec<u8>,
    /// Where each block ends in the buffer.
    ends: Vec<usize>,
}

impl BlockFile {
    /// A file that is written from its end on.
    pub fn new(file: File) -> Self {
        Self {
            file,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            ends: Vec::new(),
        }
    }

    /// Writes what was gathered, and says how much of it went out if that fails.
    fn write_out(&mut self) -> Result<(), (usize, io::Error)> {
        let (mut written, mut interruptions) = (0, 0);
        while written < self.buffer.len() {
            match self.file.write(&self.buffer[written..]) {
                Ok(0) => return Err((written, ErrorKind::WriteZero.into())),
                Ok(count) => (written, interruptions) = (written + count, 0),
                Err(e)
                    if e.kind() == ErrorKind::Interrupted && interruptions < INTERRUPTIONS_MAX =>
                {
                    interruptions += 1;
                }
                Err(e) => return Err((written, e)),
            }
        }
        Ok(())
    }

    /// Takes the part of a block out of the file that its end has, after so many bytes of the
    /// buffer were written. A pipe keeps it.
    fn cut(&self, written: usize) -> io::Result<()> {
        let whole = self.ends.iter().rfind(|end| **end <= written);
        let excess = (written - whole.unwrap_or(&0)) as u64;
        let metadata = self.file.metadata()?;
        match metadata.is_file() && excess > 0 {
            true => self.file.set_len(metadata.len().saturating_sub(excess)),
            false => Ok(()),
        }
    }
}

impl Write for BlockFile {
    fn write(&mut self, block: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + block.len() > BUFFER_BYTES {
            self.flush()?;
        }
        self.buffer.extend_from_slice(block);
        self.ends.push(self.buffer.len());
        Ok(block.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.write_out();
        let result = result.map_err(|(written, error)| {
            // If the file cannot even be cut, the first error is the one to be told.
            let _ = self.cut(written);
            error
        });
        self.buffer.clear();
        self.ends.clear();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn blocks_come_in_order_however_large() {
        let path = std::env::temp_dir().join(format!("outboard-blocks-{}", std::process::id()));
        let mut file = BlockFile::new(File::create(&path).unwrap());
        let mut expected = Vec::new();
        for length in [1, BUFFER_BYTES - 1, 1, BUFFER_BYTES + 1, 3] {
            let block = vec![length as u8; length];
            file.write_all(&block).unwrap();
            expected.extend(block);
        }
        file.flush().unwrap();
        let written = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(written == expected);
    }

    #[test]
    fn a_part_of_a_block_is_taken_out_again() {
        let path = std::env::temp_dir().join(format!("outboard-cut-{}", std::process::id()));
        for (written, left) in [(0, 0), (9, 0), (10, 10), (15, 10), (20, 20)] {
            fs::write(&path, vec![0; written]).unwrap();
            let file = fs::OpenOptions::new().append(true).open(&path).unwrap();
            let mut blocks = BlockFile::new(file);
            blocks.ends = vec![10, 20];
            blocks.cut(written).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), left);
        }
        fs::remove_file(&path).unwrap();
    }
}
