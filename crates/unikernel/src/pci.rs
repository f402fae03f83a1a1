//! PCIe devices, and the memory that they reach.
//!
//! What an image asks for lies in its own extension note; what the tender attached, in the area
//! that it filled in. BARs are mapped where [`abi::pci::bar_address`] says, or are reached by
//! message ([`ports::message`]).

use crate::boot::{boot, runtime};
use crate::host::host;
use abi::doorbell::WORDS;
use abi::extension::{Descriptor, HEADER_SIZE};
use abi::pci::{BARS, DEVICES_MAX, Dma, Request, Virtio, bar_address, info_flag};
use abi::region::{self, REGIONS_MAX};
use alloc::rc::Rc;
use core::cell::RefMut;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use device::WaitHandle;
use hw::{DmaArena, Mmio};
use ports::message::{Bar, Connection};
use ports::{DeviceError, PciAttached};

unsafe extern "C" {
    /// The extension note; the linker script that `image` writes says where.
    #[link_name = "__extension_note"]
    static EXTENSION_NOTE: [u8; 0];
}

/// A PCIe device of the image.
pub struct PciDevice {
    device: PciAttached,
    /// How registers are reached that are not mapped.
    connection: Option<Rc<Connection>>,
}

impl PciDevice {
    /// What the manifest asks for, which is what the device is.
    pub fn request(&self) -> &'static Request {
        self.device.request
    }

    /// Its name in the manifest.
    pub fn name(&self) -> &'static str {
        self.device.request.name().unwrap_or("")
    }

    /// Its index among all devices, by which counters are found.
    pub fn index(&self) -> u8 {
        self.device.index
    }

    /// The registers of this BAR, if the manifest asks for them.
    pub fn bar(&self, bar: usize) -> Option<Mmio> {
        let bytes = *self.device.info.bar_bytes.get(bar)? as usize;
        if bytes == 0 {
            return None;
        }
        if let Some(connection) = &self.connection {
            let connection = Rc::clone(connection);
            let number = bar as u32;
            return Some(Mmio::asked(Rc::new(Bar {
                connection,
                number,
                bytes,
            })));
        }
        let address = bar_address(self.device.number, bar) as usize;
        let start = NonNull::new(core::ptr::with_exposed_provenance_mut(address))?;
        // SAFETY: the tender has mapped so many bytes there, for ever; nothing else is there, and
        // all that a device can do to memory it can do to DMA memory alone.
        Some(unsafe { Mmio::mapped(start, bytes) })
    }

    /// Where the structures of a virtio device lie; `None` for any other.
    pub fn virtio(&self) -> Option<&Virtio> {
        Some(&self.device.info.virtio).filter(|virtio| virtio.common.bytes > 0)
    }

    /// The registers of a virtio device over memory-mapped I/O; `None` for any other.
    pub fn window(&self) -> Option<Mmio> {
        let is_window = self.device.info.flags & info_flag::WINDOW != 0;
        is_window.then(|| self.bar(0)).flatten()
    }

    /// By what [`crate::wait`] tells that the device has interrupted; `None` for one that cannot,
    /// since the manifest does not make it a bus master.
    pub fn wait_handle(&self) -> Option<WaitHandle> {
        let interrupts = self.device.info.flags & info_flag::INTERRUPT != 0;
        interrupts.then_some(WaitHandle(self.device.index))
    }
}

/// The PCIe device of this name, once.
///
/// # Errors
/// If the manifest has no such device, it was handed out already, or the tender attaches none.
pub fn pci(name: &str) -> Result<PciDevice, DeviceError> {
    let device = runtime().devices.take_pci(name)?;
    let flags = device.info.flags;
    let connection = (flags & info_flag::MESSAGE != 0).then(|| {
        let page = (flags & info_flag::DOORBELLS != 0).then(|| doorbells(device.number));
        let index = usize::from(device.index);
        let socket = host().handle(index, device.info.handle);
        Rc::new(Connection::new(runtime(), socket, index, page.flatten()))
    });
    Ok(PciDevice { device, connection })
}

/// How many PCIe devices of the manifest nobody has asked for yet: who takes DMA memory leaves as
/// much to each of them.
pub fn pci_left() -> usize {
    runtime().devices.pci_left()
}

/// The page of doorbells of PCIe device `number`, which has one.
fn doorbells(number: usize) -> Option<&'static [AtomicU64; WORDS]> {
    let address = core::ptr::with_exposed_provenance_mut(bar_address(number, 0) as usize);
    let page = NonNull::<[AtomicU64; WORDS]>::new(address)?;
    // SAFETY: the tender has mapped a page there, for ever; it is touched as atomics alone.
    Some(unsafe { page.as_ref() })
}

/// The DMA memory, for whoever takes pieces of it and for no longer; `None` if the manifest asks
/// for none, or while somebody else has it.
pub fn dma() -> Option<RefMut<'static, DmaArena>> {
    let arena = boot().dma.try_borrow_mut().ok()?;
    RefMut::filter_map(arena, Option::as_mut).ok()
}

/// The DMA memory that the tender told of.
///
/// # Safety
/// To be called once: so many zeroed bytes are mapped there, for ever, devices find them at its I/O
/// address, and nobody else uses them.
pub(crate) unsafe fn arena(dma: Dma) -> Option<DmaArena> {
    let start = NonNull::new(core::ptr::with_exposed_provenance_mut(dma.address as usize))?;
    // SAFETY: the caller vouches for it.
    Some(unsafe { DmaArena::new(start, dma.bytes as usize, dma.iova) })
}

/// The PCIe devices and the regions that the image asks for.
pub(crate) fn requests() -> (&'static [Request], &'static [region::Request]) {
    let note = (&raw const EXTENSION_NOTE).expose_provenance();
    let place = note + HEADER_SIZE;
    let descriptor = core::ptr::with_exposed_provenance::<[u32; 8]>(place);
    // SAFETY: the descriptor follows the header of the note, aligned to 4 bytes at least; volatile,
    // for the linker wrote it.
    let descriptor = unsafe { descriptor.read_volatile() };
    let descriptor: Descriptor = zerocopy::transmute!(descriptor);
    let first = core::ptr::with_exposed_provenance(place + size_of::<Descriptor>());
    let count = (descriptor.pci as usize).min(DEVICES_MAX);
    // SAFETY: as many requests follow the descriptor as it says, in a segment that nobody writes;
    // they need no more than 4 bytes of alignment, which the note has.
    let pci = unsafe { core::slice::from_raw_parts(first, count) };
    let first = core::ptr::with_exposed_provenance(
        place + size_of::<Descriptor>() + count * size_of::<Request>(),
    );
    let count = (descriptor.regions as usize).min(REGIONS_MAX);
    // SAFETY: as above; regions follow the PCIe devices.
    let regions = unsafe { core::slice::from_raw_parts(first, count) };
    (pci, regions)
}

const _: () = assert!(align_of::<region::Request>() == 4);
const _: () = assert!(align_of::<Request>() == 4 && BARS <= u8::BITS as usize);
