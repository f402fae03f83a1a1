//! The smallest guest of a virtual machine, by which KVM shows what it is worth.
//!
//! Where KVM runs without the help of a processor, as on some clouds, it interprets the guest's
//! instructions and knows some of them only: no arithmetic of SSE, of which all compiled programs
//! are full. Nothing but such a guest tells.

use super::cpu;
use super::error::{self, Error, from_kvm};
use super::paging::{Builder, Rights};
use super::setup::{TABLES, prepare};
use crate::hvt::Exit;
use crate::memory::Gpa;
use crate::start::put;
use crate::sys::machine::{Machine, Running};
use abi::hvt::CALL_PORT;
use abi::{IMAGE_BASE, PAGE_SIZE};
use kvm_ioctls::Kvm;

/// What the guest writes to [`CALL_PORT`] first.
const HELLO: u32 = 1;
/// What it writes next: 3 times 3, in SSE.
const PRODUCT: u32 = 9;

const CODE: &[u8] = &[
    0xb8,
    HELLO as u8,
    0,
    0,
    0, // mov eax, HELLO
    0x66,
    0xba,
    0x00,
    (CALL_PORT >> 8) as u8, // mov dx, CALL_PORT
    0xef,                   // out dx, eax
    0xb8,
    3,
    0,
    0,
    0, // mov eax, 3
    0xf2,
    0x0f,
    0x2a,
    0xc0, // cvtsi2sd xmm0, eax
    0xf2,
    0x0f,
    0x59,
    0xc0, // mulsd xmm0, xmm0
    0xf2,
    0x0f,
    0x2c,
    0xc0, // cvttsd2si eax, xmm0
    0xef, // out dx, eax
    0xf4, // hlt
];

const _: () = assert!(CALL_PORT.is_multiple_of(0x100));

const MEMORY_BYTES: u64 = 2 << 20;
/// How often a signal may interrupt one run of the guest.
const INTERRUPTIONS_MAX: u32 = 16;

/// What KVM can do here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Run guests.
    Usable,
    /// Interpret their instructions, but not those of SSE.
    Interpreter,
    /// Neither: how the guest stopped.
    Broken(String),
}

/// Makes a machine and runs the guest in it. This takes some 30 instructions; bound it in time
/// from outside.
///
/// # Errors
/// The first step towards a machine that is refused.
pub fn run() -> Result<Ability, Error> {
    let kvm = Kvm::new().map_err(|error| Error::no_kvm(from_kvm(error)))?;
    let machine = Machine::new(&kvm, MEMORY_BYTES as usize, false);
    let mut machine = machine.map_err(|error| Error::Machine(MEMORY_BYTES >> 20, false, error))?;
    put(&mut machine, Gpa::new(IMAGE_BASE), CODE)?;
    let execute = Rights {
        execute: true,
        ..Rights::default()
    };
    let mut tables = Builder::new(TABLES)?;
    tables.map(
        IMAGE_BASE..IMAGE_BASE + PAGE_SIZE,
        Gpa::new(IMAGE_BASE),
        execute,
    )?;
    let registers = cpu::registers(IMAGE_BASE, MEMORY_BYTES);
    let cpuid = cpu::supported(&kvm).map_err(error::step("CPUID"))?;
    prepare(&mut machine, &cpuid, &tables, registers)?;
    let mut machine = machine.start(None);
    let first = step(&mut machine)?;
    if first != Exit::Port(CALL_PORT, HELLO) {
        return Ok(Ability::Broken(format!("{first:?}")));
    }
    Ok(match step(&mut machine)? {
        Exit::Port(CALL_PORT, PRODUCT) => Ability::Usable,
        Exit::Internal => Ability::Interpreter,
        other => Ability::Broken(format!("{other:?}")),
    })
}

fn step(machine: &mut Running) -> Result<Exit, Error> {
    let mut exit = Exit::Interrupted;
    for _ in 0..INTERRUPTIONS_MAX {
        exit = machine
            .enter()
            .map(Exit::from)
            .map_err(|errno| Error::Step("run", errno.into()))?;
        if exit != Exit::Interrupted {
            break;
        }
    }
    Ok(exit)
}
