//! The options of a client, until it wants the disk or goes ("Handshake phase").

use crate::export::Export;
use crate::wire::{
    ANSWER_MAGIC, MAGIC, OPTION_BYTES_MAX, OPTION_MAGIC, answer, handshake, info, name_of, option,
};
use alloc::vec::Vec;

/// Options of one client: more than any has use for.
pub const OPTIONS_MAX: usize = 64;
/// Bytes of zeroes behind the answer to `NBD_OPT_EXPORT_NAME`, for clients that want them.
const ZEROES: usize = 124;

/// What a server says first.
pub fn greeting() -> [u8; 18] {
    let flags = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&flags.to_be_bytes());
    bytes
}

/// What comes behind an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next option.
    Option,
    /// Requests.
    Requests,
    /// Nothing: the connection ends.
    End,
}

/// What was agreed so far.
#[derive(Clone, Copy, Debug)]
pub struct Negotiation {
    /// Whether zeroes are left out.
    no_zeroes: bool,
    /// Whether replies are structured.
    pub structured: bool,
    options: usize,
}

impl Negotiation {
    /// With a client of these flags; `None` with one whose flags mean nothing to us, or that knows
    /// no negotiation.
    pub fn new(flags: u32) -> Option<Self> {
        let known = u32::from(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
        let fixed = flags & u32::from(handshake::FIXED_NEWSTYLE) != 0;
        (flags & !known == 0 && fixed).then_some(Self {
            no_zeroes: flags & u32::from(handshake::NO_ZEROES) != 0,
            structured: false,
            options: 0,
        })
    }

    /// Answers an option with this data, which is none where it is longer than
    /// [`OPTION_BYTES_MAX`]: `data` says so.
    pub fn answer(
        &mut self,
        export: &Export,
        option: u32,
        data: Option<&[u8]>,
        answers: &mut Vec<u8>,
    ) -> Next {
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return Next::End;
        }
        let mut reply = |kind, parts: &[&[u8]]| put(answers, option, kind, parts);
        let Some(data) = data else {
            // This one has no answer but the disk.
            if option == option::EXPORT_NAME {
                return Next::End;
            }
            reply(answer::TOO_BIG, &[]);
            return Next::Option;
        };
        match option {
            option::EXPORT_NAME if export.is_called(data) => {
                answers.extend_from_slice(&export.capacity.to_be_bytes());
                answers.extend_from_slice(&export.flags().to_be_bytes());
                if !self.no_zeroes {
                    answers.extend_from_slice(&[0; ZEROES]);
                }
                return Next::Requests;
            }
            option::EXPORT_NAME => return Next::End,
            option::ABORT => {
                reply(answer::ACK, &[]);
                return Next::End;
            }
            option::LIST | option::STRUCTURED_REPLY if !data.is_empty() => {
                reply(answer::INVALID, &[]);
            }
            option::LIST => {
                let length = export.name.len() as u32;
                let name = export.name.as_bytes();
                reply(answer::SERVER, &[&length.to_be_bytes(), name]);
                reply(answer::ACK, &[]);
            }
            option::STRUCTURED_REPLY => {
                self.structured = true;
                reply(answer::ACK, &[]);
            }
            option::INFO | option::GO => match name_of(data) {
                None => reply(answer::INVALID, &[]),
                Some(name) if !export.is_called(name) => reply(answer::UNKNOWN, &[]),
                Some(_) => {
                    let size = export.capacity.to_be_bytes();
                    let flags = export.flags().to_be_bytes();
                    reply(answer::INFO, &[&info::EXPORT.to_be_bytes(), &size, &flags]);
                    let [least, best, most] = export.block_sizes().map(u32::to_be_bytes);
                    let kind = info::BLOCK_SIZE.to_be_bytes();
                    reply(answer::INFO, &[&kind, &least, &best, &most]);
                    reply(answer::ACK, &[]);
                    if option == option::GO {
                        return Next::Requests;
                    }
                }
            },
            _ => reply(answer::UNSUPPORTED, &[]),
        }
        Next::Option
    }
}

/// Adds an answer.
fn put(answers: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    debug_assert!(length <= OPTION_BYTES_MAX as usize, "names are short");
    answers.extend_from_slice(&ANSWER_MAGIC.to_be_bytes());
    answers.extend_from_slice(&option.to_be_bytes());
    answers.extend_from_slice(&kind.to_be_bytes());
    answers.extend_from_slice(&(length as u32).to_be_bytes());
    parts
        .iter()
        .for_each(|part| answers.extend_from_slice(part));
}
