//! Counts in memory that outlives it how often it was started with the layout in its arguments, and
//! is killed or ends by itself.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use unikernel::{Mark, println};

unikernel::entry!(main);

fn main() -> i32 {
    let mut arguments = unikernel::arguments();
    let layout = arguments.next().and_then(|word| word.parse().ok());
    let state = match unikernel::state(&Mark::new("memory", layout.unwrap_or(0))) {
        Ok(state) => state,
        Err(error) => {
            println!("{error}");
            return unikernel::abi::exit::FAILURE;
        }
    };
    if let Some(refused) = state.refused {
        println!("refused: {refused}");
    }
    state.body[0] += 1;
    let (last, count) = (state.body.len() - 1, state.body[0]);
    state.body[last] = count;
    println!("start {count} of {}", state.generation);
    if arguments.next().is_some() {
        unikernel::wait(None);
    }
    unikernel::abi::exit::SUCCESS
}
