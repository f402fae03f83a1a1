//! Which calls of a program are answered here, which are refused, and which the kernel does: a
//! filter of seccomp(2).
//!
//! The filter sees arguments, and not what they point to. So a call that could be about a socket of
//! ours is passed to us, and we say if it is none. What moves bytes of a connection (`read`,
//! `write`, `send` without an address, `sendfile`, `poll`, `epoll`) is never passed to us.

use linux::interface::QUESTIONS;
use linux::notify::Instruction;

/// `AUDIT_ARCH_X86_64` of Linux's `include/uapi/linux/audit.h`.
const ARCHITECTURE: u32 = 0xc000_003e;
/// The bit of the numbers of the x32 ABI: `__X32_SYSCALL_BIT`.
const X32: u32 = 0x4000_0000;
/// Where `struct seccomp_data` has the number, the architecture, and the first argument.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

/// Instructions of the classic BPF machine: Linux's `include/uapi/linux/bpf_common.h`.
const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// What becomes of a call: Linux's `include/uapi/linux/seccomp.h`.
const KILL: u32 = 0x8000_0000;
const ERROR: u32 = 0x0005_0000;
const ERROR_NUMBER: u32 = 0xffff;
const NOTIFY: u32 = 0x7fc0_0000;
const ALLOW: u32 = 0x7fff_0000;

/// Numbers of calls: `asm/unistd_64.h`.
pub mod number {
    pub const IOCTL: i32 = 16;
    pub const SOCKET: i32 = 41;
    pub const CONNECT: i32 = 42;
    pub const ACCEPT: i32 = 43;
    pub const SENDTO: i32 = 44;
    pub const RECVFROM: i32 = 45;
    pub const SENDMSG: i32 = 46;
    pub const RECVMSG: i32 = 47;
    pub const BIND: i32 = 49;
    pub const LISTEN: i32 = 50;
    pub const GETSOCKNAME: i32 = 51;
    pub const GETPEERNAME: i32 = 52;
    pub const SETSOCKOPT: i32 = 54;
    pub const GETSOCKOPT: i32 = 55;
    pub const ACCEPT4: i32 = 288;
    pub const RECVMMSG: i32 = 299;
    pub const SENDMMSG: i32 = 307;
    pub const IO_URING_SETUP: i32 = 425;
    pub const IO_URING_ENTER: i32 = 426;
    pub const IO_URING_REGISTER: i32 = 427;
}

/// `SIOCGIFCONF` of netdevice(7), which lists interfaces: Linux's `include/uapi/linux/sockios.h`.
pub const LIST: u32 = 0x8912;

/// Families of addresses: Linux's `include/linux/socket.h`.
pub mod family {
    pub const UNIX: u32 = 1;
    pub const INET: u32 = 2;
    pub const INET6: u32 = 10;
    pub const NETLINK: u32 = 16;
}

/// Error numbers that the filter answers by itself.
const NO_FAMILY: u32 = 97;
const NO_CALL: u32 = 38;

/// What becomes of a call.
#[derive(Clone, Copy)]
enum Verdict {
    /// The kernel does it.
    Allow,
    /// We answer it.
    Notify,
    /// It fails with this number.
    Refuse(u32),
}

impl Verdict {
    fn value(self) -> u32 {
        match self {
            Self::Allow => ALLOW,
            Self::Notify => NOTIFY,
            Self::Refuse(number) => ERROR | number,
        }
    }
}

/// What decides about a call, beside its number.
enum Rule {
    /// Nothing.
    Always(Verdict),
    /// The low 32 bits of an argument, of which the kernel takes no more.
    By {
        argument: u32,
        cases: &'static [(u32, Verdict)],
        otherwise: Verdict,
    },
    /// Whether a pointer is null: the kernel does it then, and we if not.
    Pointer { argument: u32 },
    /// Options that the kernel's sockets have as ours do, of `SOL_SOCKET`: it does them.
    Options { kernels: &'static [u32] },
}

/// `SOL_SOCKET`, and options of Linux's `include/uapi/asm-generic/socket.h`.
const SOL_SOCKET: u32 = 1;
const SO_TYPE: u32 = 3;
const SO_BROADCAST: u32 = 6;
const SO_PASSCRED: u32 = 16;
const SO_PEERCRED: u32 = 17;
const SO_RCVLOWAT: u32 = 18;
const SO_RCVTIMEO: u32 = 20;
const SO_SNDTIMEO: u32 = 21;
const SO_ACCEPTCONN: u32 = 30;
const SO_PEERSEC: u32 = 31;
const SO_RCVTIMEO_NEW: u32 = 66;
const SO_SNDTIMEO_NEW: u32 = 67;

/// What the kernel does with options of a socket as well as we could.
const KERNELS_OPTIONS: &[u32] = &[
    SO_TYPE,
    SO_BROADCAST,
    SO_PASSCRED,
    SO_PEERCRED,
    SO_RCVLOWAT,
    SO_RCVTIMEO,
    SO_SNDTIMEO,
    SO_ACCEPTCONN,
    SO_PEERSEC,
    SO_RCVTIMEO_NEW,
    SO_SNDTIMEO_NEW,
];

/// What is asked about interfaces.
const ABOUT_INTERFACES: [(u32, Verdict); QUESTIONS.len() + 1] = {
    let mut cases = [(LIST, Verdict::Notify); QUESTIONS.len() + 1];
    let mut at = 0;
    while at < QUESTIONS.len() {
        cases[at].0 = QUESTIONS[at];
        at += 1;
    }
    cases
};

/// All calls about which anything is decided.
const RULES: &[(i32, Rule)] = &[
    (
        number::SOCKET,
        Rule::By {
            argument: 0,
            cases: &[
                (family::UNIX, Verdict::Allow),
                (family::INET, Verdict::Notify),
                (family::INET6, Verdict::Notify),
                // The program has a network of its own, in which there is nothing.
                (family::NETLINK, Verdict::Allow),
            ],
            otherwise: Verdict::Refuse(NO_FAMILY),
        },
    ),
    (
        number::IOCTL,
        Rule::By {
            argument: 1,
            cases: &ABOUT_INTERFACES,
            otherwise: Verdict::Allow,
        },
    ),
    (number::CONNECT, Rule::Always(Verdict::Notify)),
    // Who accepts must not wait in the kernel while we accept from the same queue.
    (number::ACCEPT, Rule::Always(Verdict::Notify)),
    (number::ACCEPT4, Rule::Always(Verdict::Notify)),
    (number::SENDTO, Rule::Pointer { argument: 4 }),
    (number::RECVFROM, Rule::Pointer { argument: 4 }),
    (number::SENDMSG, Rule::Always(Verdict::Notify)),
    (number::RECVMSG, Rule::Always(Verdict::Notify)),
    (number::SENDMMSG, Rule::Always(Verdict::Notify)),
    (number::RECVMMSG, Rule::Always(Verdict::Notify)),
    (number::BIND, Rule::Always(Verdict::Notify)),
    (number::LISTEN, Rule::Always(Verdict::Notify)),
    (number::GETSOCKNAME, Rule::Always(Verdict::Notify)),
    (number::GETPEERNAME, Rule::Always(Verdict::Notify)),
    (
        number::SETSOCKOPT,
        Rule::Options {
            kernels: KERNELS_OPTIONS,
        },
    ),
    (
        number::GETSOCKOPT,
        Rule::Options {
            kernels: KERNELS_OPTIONS,
        },
    ),
    // Its calls would pass by this filter.
    (
        number::IO_URING_SETUP,
        Rule::Always(Verdict::Refuse(NO_CALL)),
    ),
    (
        number::IO_URING_ENTER,
        Rule::Always(Verdict::Refuse(NO_CALL)),
    ),
    (
        number::IO_URING_REGISTER,
        Rule::Always(Verdict::Refuse(NO_CALL)),
    ),
];

/// The filter of every program. What it refuses by itself is passed to us as well, where it is to
/// be `noted`.
pub fn program(noted: bool) -> Vec<Instruction> {
    let mut filter = vec![load(ARCHITECTURE_AT)];
    // Another architecture numbers its calls otherwise.
    filter.extend([jump(JUMP_EQUAL, ARCHITECTURE, 1, 0), give(KILL)]);
    filter.push(load(NUMBER_AT));
    filter.extend([
        jump(JUMP_AT_LEAST, X32, 0, 1),
        give(Verdict::Refuse(NO_CALL).value()),
    ]);
    for (number, rule) in RULES {
        let mut body = body(rule);
        let refused =
            |one: &&mut Instruction| one.code == RETURN && one.operand & !ERROR_NUMBER == ERROR;
        if noted {
            body.iter_mut()
                .filter(refused)
                .for_each(|one| one.operand = NOTIFY);
        }
        filter.push(jump(
            JUMP_EQUAL,
            number.cast_unsigned(),
            0,
            body.len() as u8,
        ));
        filter.extend(body);
    }
    filter.push(give(ALLOW));
    filter
}

/// What decides about one call. Each of its ways ends in a return.
fn body(rule: &Rule) -> Vec<Instruction> {
    match rule {
        Rule::Always(verdict) => vec![give(verdict.value())],
        Rule::By {
            argument,
            cases,
            otherwise,
        } => {
            let mut body = vec![load(low(*argument))];
            for (value, verdict) in *cases {
                body.extend([jump(JUMP_EQUAL, *value, 0, 1), give(verdict.value())]);
            }
            body.push(give(otherwise.value()));
            body
        }
        Rule::Pointer { argument } => vec![
            load(low(*argument)),
            jump(JUMP_EQUAL, 0, 0, 3),
            load(high(*argument)),
            jump(JUMP_EQUAL, 0, 0, 1),
            give(ALLOW),
            give(NOTIFY),
        ],
        Rule::Options { kernels } => {
            let mut body = vec![
                load(low(1)),
                jump(JUMP_EQUAL, SOL_SOCKET, 1, 0),
                give(NOTIFY),
                load(low(2)),
            ];
            for option in *kernels {
                body.extend([jump(JUMP_EQUAL, *option, 0, 1), give(ALLOW)]);
            }
            body.push(give(NOTIFY));
            body
        }
    }
}

/// Where the low half of an argument lies, on a machine whose numbers begin with it.
fn low(argument: u32) -> u32 {
    ARGUMENTS_AT + 8 * argument
}

fn high(argument: u32) -> u32 {
    low(argument) + 4
}

fn load(offset: u32) -> Instruction {
    instruction(LOAD, offset, 0, 0)
}

fn jump(code: u16, value: u32, if_true: u8, if_false: u8) -> Instruction {
    instruction(code, value, if_true, if_false)
}

fn give(value: u32) -> Instruction {
    instruction(RETURN, value, 0, 0)
}

fn instruction(code: u16, operand: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction {
        code,
        if_true,
        if_false,
        operand,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says of a call, as the kernel runs it (seccomp(2)).
    fn verdict(architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let word = |offset: u32| match offset {
            NUMBER_AT => number,
            ARCHITECTURE_AT => architecture,
            _ => {
                let at = offset - ARGUMENTS_AT;
                let value = arguments[(at / 8) as usize];
                (value >> (8 * (at % 8))) as u32
            }
        };
        let program = program(false);
        let (mut at, mut value) = (0, 0);
        loop {
            let one = program[at];
            at += 1;
            let holds = match one.code {
                LOAD => {
                    value = word(one.operand);
                    continue;
                }
                RETURN => return one.operand,
                JUMP_EQUAL => value == one.operand,
                JUMP_AT_LEAST => value >= one.operand,
                other => panic!("instruction {other:#x}"),
            };
            at += usize::from(match holds {
                true => one.if_true,
                false => one.if_false,
            });
        }
    }

    fn call(number: i32, arguments: [u64; 6]) -> u32 {
        verdict(ARCHITECTURE, number.cast_unsigned(), arguments)
    }

    #[test]
    fn another_architecture_ends_the_program_and_x32_does_not_exist() {
        const I386: u32 = 0x4000_0003;
        assert_eq!(verdict(I386, 102, [0; 6]), KILL);
        assert_eq!(verdict(ARCHITECTURE, X32 | 41, [2; 6]), ERROR | NO_CALL);
        assert_eq!(verdict(ARCHITECTURE, u32::MAX, [0; 6]), ERROR | NO_CALL);
    }

    #[test]
    fn no_socket_of_a_network_is_the_kernels() {
        for family in 0..=u32::from(u8::MAX) {
            let expected = match family {
                family::UNIX | family::NETLINK => ALLOW,
                family::INET | family::INET6 => NOTIFY,
                _ => ERROR | NO_FAMILY,
            };
            // The kernel looks at the low half alone.
            for high in [0, 1_u64 << 32, u64::MAX << 32] {
                let arguments = [high | u64::from(family), 1, 0, 0, 0, 0];
                assert_eq!(call(number::SOCKET, arguments), expected, "{family}");
            }
        }
    }

    #[test]
    fn what_moves_bytes_is_the_kernels_unless_it_names_an_address() {
        for number in [number::SENDTO, number::RECVFROM] {
            assert_eq!(call(number, [3, 0, 0, 0, 0, 0]), ALLOW);
            for pointer in [1, 1 << 31, 1 << 32, u64::MAX] {
                assert_eq!(call(number, [3, 0, 0, 0, pointer, 0]), NOTIFY);
            }
        }
        // read, write, poll, sendfile, epoll_wait, shutdown, close.
        for number in [0, 1, 7, 40, 232, 48, 3] {
            assert_eq!(call(number, [3; 6]), ALLOW, "{number}");
        }
    }

    #[test]
    fn rings_of_calls_are_refused() {
        for number in 425..=427 {
            assert_eq!(call(number, [0; 6]), ERROR | NO_CALL);
        }
    }

    #[test]
    fn options_are_ours_but_for_those_that_the_kernel_has_as_we_do() {
        for number in [number::SETSOCKOPT, number::GETSOCKOPT] {
            let option = |level, name| call(number, [3, level, name, 0, 0, 0]);
            assert_eq!(option(1, SO_RCVTIMEO.into()), ALLOW);
            assert_eq!(option(1, 4), NOTIFY);
            assert_eq!(option(1, 15), NOTIFY);
            assert_eq!(option(6, SO_RCVTIMEO.into()), NOTIFY);
            assert_eq!(option(41, 26), NOTIFY);
        }
    }

    #[test]
    fn what_is_refused_is_noted_where_that_is_wanted() {
        let refused = |program: Vec<Instruction>| {
            let is_refused = |one: &&Instruction| one.operand & !ERROR_NUMBER == ERROR;
            let returns = program.iter().filter(|one| one.code == RETURN);
            returns.filter(is_refused).count()
        };
        assert_eq!(refused(program(false)), 5);
        // Calls of x32 are those of no program that we could tell more about.
        assert_eq!(refused(program(true)), 1);
    }

    #[test]
    fn every_jump_stays_inside() {
        let program = program(false);
        for (at, one) in program.iter().enumerate() {
            let furthest = at + 1 + usize::from(one.if_true.max(one.if_false));
            assert!(one.code == RETURN || furthest < program.len());
        }
        assert_eq!(program.last().map(|last| last.code), Some(RETURN));
    }
}
