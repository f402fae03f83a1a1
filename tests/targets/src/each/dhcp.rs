//! A client of DHCP and arbitrary answers over time: no panic, every moment ends, a lease ends in
//! time and is one that a station can use, and whom nobody answers asks seldom.

use arbitrary::{Result, Unstructured};
use core::net::Ipv4Addr;
use core::time::Duration;
use net::dhcp::{Client, Lease, MESSAGE_LEN, Output, Question, SEARCH_MAX};
use net::ethernet::Mac;
use ports::Instant;

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const SERVER_PORT: u16 = 67;
/// What one moment may bring: a lease is lost, and a server looked for.
const OUTPUTS: usize = 2;
/// Steps of a client that nobody answers.
const SILENT_STEPS: usize = 50;
/// It asks for a server no sooner again (RFC 2131, 4.1).
const SELDOM: Duration = Duration::from_secs(3);
/// The clock's end is far: a lease takes up to 136 years.
const END: Instant = Instant(1 << 63);
/// Options that the client reads.
const OPTIONS: [u8; 11] = [1, 3, 6, 15, 26, 51, 53, 54, 58, 59, 119];

pub fn feed(input: &[u8]) {
    // It ends with its input.
    let _ = run(&mut Unstructured::new(input));
}

struct Run {
    client: Client,
    now: Instant,
    question: Option<Question>,
    /// When the last question was asked.
    asked: Instant,
    lease: Option<Lease>,
}

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let now = Instant(input.int_in_range(1..=1 << 60)?);
    let mut run = Run {
        client: Client::new(MAC, input.arbitrary()?, now),
        now,
        question: None,
        asked: now,
        lease: None,
    };
    let result = run.steps(input);
    run.silence();
    result
}

impl Run {
    fn steps(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        self.settle();
        while !input.is_empty() && self.now < END {
            match input.int_in_range(0..=3)? {
                0 => {
                    let longer = Duration::from_millis(1 << input.int_in_range(0..=32)?);
                    self.now = match (input.arbitrary()?, self.client.deadline()) {
                        (true, Some(deadline)) => self.now.max(deadline),
                        _ => self.now + longer,
                    };
                }
                1 => {
                    let output = self.client.checked(input.arbitrary()?, self.now);
                    self.take(output);
                }
                _ => {
                    let message = self.message(input)?;
                    let output = self.client.receive(&message, SERVER_PORT, self.now);
                    self.take(output);
                }
            }
            self.settle();
        }
        Ok(())
    }

    /// An answer to the last question, mostly.
    fn message(&self, input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; 240];
        bytes[..3].copy_from_slice(&[2, 1, 6]);
        let xid = self.question.as_ref().map_or(0, |question| question.xid);
        bytes[4..8].copy_from_slice(&xid.to_be_bytes());
        let address = [10, 0, 0, *input.choose(&[0, 1, 50, 255])?];
        bytes[16..20].copy_from_slice(&address);
        bytes[28..34].copy_from_slice(&MAC.0);
        bytes[236..].copy_from_slice(&[0x63, 0x82, 0x53, 0x63]);
        let kind = *input.choose(&[2, 5, 5, 6, 0, 255])?;
        bytes.extend([53, 1, kind, 54, 4, 10, 0, 0, input.int_in_range(1..=2)?]);
        if input.ratio(7, 8)? {
            bytes.extend([1, 4, 255, 255, 255, 0, 51, 4]);
            let time: u32 = *input.choose(&[0, 1, 2, 60, 3600, u32::MAX - 1, u32::MAX])?;
            bytes.extend(time.to_be_bytes());
        }
        for _ in 0..input.int_in_range(0..=4)? {
            let data: Vec<u8> = input.arbitrary()?;
            let data = &data[..data.len().min(255)];
            bytes.extend([*input.choose(&OPTIONS)?, data.len() as u8]);
            bytes.extend(data);
        }
        bytes.push(255);
        for _ in 0..input.int_in_range(0..=2)? {
            let place = input.choose_index(bytes.len())?;
            bytes[place] = input.arbitrary()?;
        }
        if input.ratio(1, 8)? {
            bytes.truncate(input.choose_index(bytes.len())?);
        }
        Ok(bytes)
    }

    /// All that is due now.
    fn settle(&mut self) {
        for _ in 0..=OUTPUTS {
            let Some(output) = self.client.poll(self.now) else {
                let deadline = self.client.deadline();
                assert!(deadline.is_none_or(|due| self.now < due), "it stays due");
                return self.check();
            };
            self.take(Some(output));
        }
        panic!("it never rests: {:?}", self.client);
    }

    fn take(&mut self, output: Option<Output>) {
        match output {
            Some(Output::Send(question)) => {
                let mut place = [0; MESSAGE_LEN];
                assert_eq!(question.write(&mut place), MESSAGE_LEN);
                (self.question, self.asked) = (Some(question), self.now);
            }
            Some(Output::Check(lease)) => {
                assert_eq!(self.client.checks(), Some(lease.address.address()));
                assert_eq!(self.lease, None);
            }
            Some(Output::Use(lease)) => self.lease = Some(lease),
            Some(Output::Lose(lease)) => assert_eq!(self.lease.take(), Some(lease)),
            None => {}
        }
    }

    fn check(&self) {
        assert_eq!(self.client.lease(), self.lease.as_ref());
        let Some(lease) = &self.lease else {
            return;
        };
        let address = lease.address.address();
        assert!(!address.is_unspecified() && !address.is_multicast());
        assert_ne!(lease.router, Some(Ipv4Addr::UNSPECIFIED));
        assert!(lease.search.len() <= SEARCH_MAX);
        if let Some(times) = lease.times {
            assert!(times.renewal < times.rebinding && times.rebinding < times.end);
            assert!(self.now < self.asked + times.end, "it is ours no more");
        }
    }

    /// Nobody answers any more.
    fn silence(&mut self) {
        for _ in 0..SILENT_STEPS {
            if self.now >= END {
                return;
            }
            let output = self.client.checked(false, self.now);
            self.take(output);
            let Some(due) = self.client.deadline() else {
                let forever = |lease: &Lease| lease.times.is_none();
                assert!(self.lease.as_ref().is_some_and(forever), "it asks no more");
                return;
            };
            let (looks, asked) = (self.lease.is_none(), self.asked);
            self.now = self.now.max(due);
            self.settle();
            assert!(!looks || self.now - asked >= SELDOM, "it asks too often");
        }
    }
}
