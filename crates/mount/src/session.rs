//! The kernel's requests. They arrive on a thread of `fuser`'s and are done one after the other on
//! that of the file system.

use crate::held::{Answer, Held, Wish, now};
use device::files::FileSystem;
use fs::disk::Disk;
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session,
    TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime};

/// How long the kernel may believe what it was told: nobody else changes the disk.
const BELIEVED: Duration = Duration::from_secs(60);
/// What was written is on the disk once nobody has asked for anything for so long.
const IDLE: Duration = Duration::from_millis(500);
/// How often somebody is asked whether it is to end.
const TURN: Duration = Duration::from_millis(50);
/// What `mknod` makes (inode(7), `S_IFMT`).
const FORMAT: u32 = 0o170_000;
const FORMAT_FILE: u32 = 0o100_000;

/// Something that the kernel asks for, with the place for the answer.
type Job = Box<dyn FnOnce(&mut Held) + Send>;

/// A file system that is mounted, and that nobody serves yet.
pub struct Mounted {
    held: Held,
    jobs: Receiver<Job>,
    session: Option<BackgroundSession>,
    folder: PathBuf,
    /// What it is, as in `ext2`.
    pub name: &'static str,
    /// Whether it can be written.
    pub is_writable: bool,
}

/// Mounts the file system of a disk on a folder. Root mounts it itself, others by fusermount3.
///
/// # Errors
/// There is no file system, or the kernel or fusermount3 does not mount it.
pub fn mount(disk: &Disk, is_written: bool, folder: &Path, source: &str) -> io::Result<Mounted> {
    let files = match is_written {
        true => fs::mount_to_write(disk, now),
        false => fs::mount(disk),
    };
    let files: Box<dyn FileSystem> = files.map_err(io::Error::other)?;
    let (name, is_writable) = (files.name(), files.is_writable());
    let owner = (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let (sender, jobs) = channel();
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(source.replace(',', "_")),
        MountOption::Subtype(name.into()),
        MountOption::DefaultPermissions,
    ];
    if !is_writable {
        config.mount_options.push(MountOption::RO);
    }
    let session = Session::new(Kernel(sender), folder, &config)?.spawn()?;
    Ok(Mounted {
        held: Held::new(files, owner),
        jobs,
        session: Some(session),
        folder: folder.into(),
        name,
        is_writable,
    })
}

impl Mounted {
    /// Serves it until somebody unmounts it, which is done here once `is_over` says so.
    ///
    /// # Errors
    /// What was written last may be lost, or it cannot be unmounted.
    pub fn serve(mut self, is_over: impl Fn() -> bool) -> io::Result<()> {
        let mut idle = Duration::ZERO;
        loop {
            if is_over()
                && let Some(session) = self.session.take()
            {
                // Who still has a file open there is served until it is closed.
                drop(session);
                let _ = rustix::mount::unmount(&self.folder, rustix::mount::UnmountFlags::DETACH);
            }
            match self.jobs.recv_timeout(TURN) {
                Ok(job) => {
                    job(&mut self.held);
                    idle = Duration::ZERO;
                }
                Err(RecvTimeoutError::Timeout) => idle += TURN,
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.held.is_changed && idle >= IDLE {
                // Whoever syncs hears of it, too.
                let _ = self.held.sync();
            }
        }
        let synced = self.held.sync();
        synced.map_err(|errno| io::Error::from_raw_os_error(errno.code()))
    }
}

/// The end that the kernel's requests arrive at.
struct Kernel(Sender<Job>);

impl Kernel {
    fn ask(&self, job: impl FnOnce(&mut Held) + Send + 'static) {
        // Who serves is gone: its process ends.
        let _ = self.0.send(Box::new(job));
    }
}

fn empty(reply: ReplyEmpty, answer: Answer<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn entry(reply: ReplyEntry, answer: Answer<fuser::FileAttr>) {
    match answer {
        Ok(found) => reply.entry(&BELIEVED, &found, Generation(0)),
        Err(errno) => reply.error(errno),
    }
}

fn attributes(reply: ReplyAttr, answer: Answer<fuser::FileAttr>) {
    match answer {
        Ok(found) => reply.attr(&BELIEVED, &found),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Kernel {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        self.ask(move |held| entry(reply, held.look_up(parent, &name)));
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.ask(move |held| held.forget(ino, nlookup));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.ask(move |held| attributes(reply, held.attributes(ino)));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wish = Wish {
            mode,
            user,
            group,
            size,
            modified,
        };
        self.ask(move |held| attributes(reply, held.change(ino, &wish)));
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        if mode & FORMAT != FORMAT_FILE {
            return reply.error(Errno::EPERM);
        }
        let name = name.as_bytes().to_vec();
        self.ask(move |held| entry(reply, held.make_file(parent, &name)));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        self.ask(move |held| entry(reply, held.make_folder(parent, &name)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.ask(move |held| empty(reply, held.remove(parent, &name)));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.ask(move |held| empty(reply, held.remove(parent, &name)));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !(flags & !RenameFlags::RENAME_NOREPLACE).is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let (name, newname) = (name.as_bytes().to_vec(), newname.as_bytes().to_vec());
        self.ask(move |held| {
            let done = held.rename((parent, &name), (newparent, &newname), flags.is_empty());
            empty(reply, done);
        });
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        self.ask(move |held| match held.open(ino, writes) {
            // Nobody else changes it: what the kernel keeps of it stays right.
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            Err(errno) => reply.error(errno),
        });
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let name = name.as_bytes().to_vec();
        self.ask(move |held| match held.create(parent, &name) {
            Ok(made) => reply.created(
                &BELIEVED,
                &made,
                Generation(0),
                FileHandle(0),
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
            Err(errno) => reply.error(errno),
        });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.ask(move |held| match held.read(ino, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let bytes = data.to_vec();
        self.ask(move |held| match held.write(ino, offset, &bytes) {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(errno) => reply.error(errno),
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.ask(move |held| {
            held.close(ino);
            reply.ok();
        });
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.ask(move |held| empty(reply, held.sync()));
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.ask(move |held| empty(reply, held.sync()));
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.ask(move |held| match held.open_folder(ino) {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        });
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.ask(move |held| {
            let list = match held.listed(fh) {
                Ok(list) => list,
                Err(errno) => return reply.error(errno),
            };
            for (at, (number, kind, name)) in list.iter().enumerate().skip(offset as usize) {
                let is_full = reply.add(*number, at as u64 + 1, *kind, OsStr::from_bytes(name));
                if is_full {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.ask(move |held| {
            held.close_folder(fh);
            reply.ok();
        });
    }
}
