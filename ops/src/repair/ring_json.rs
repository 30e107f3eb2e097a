//! Recreates a missing or damaged `ring.json`: the ring id is from the manifests, the rest from the configuration.

use super::facts::{Cause, Remedy};
use super::{RepairAction, State};
use ringreel::config::Config;
use ringreel::coordination::{Backend, Claim, IfUnreachable};
use ringreel::error::{Error, Result};
use ringreel::fs::atomic_publish::{publish, same_file, write_new};
use ringreel::fs::{Fs, within};
use ringreel::layout::Layout;
use ringreel::manifest::store::Manifests;
use ringreel::random::random_u32;
use ringreel::ring::descriptor::{self, RING_VERSION, RingDescriptor};
use ringreel::ring::{Ring, owner_name};
use std::sync::Arc;

/// Most bytes of a `ring.json`.
const MAX_BYTES: u64 = 1 << 20;

/// Opens the ring that `config` describes, even if its `ring.json` is missing or damaged. Returns this as the first repair;
/// with `apply`, it is made.
///
/// # Errors
/// As [`Ring::find`]; a `config` that lacks required keys, or contradicts the manifests.
pub fn find_damaged(
    fs: Arc<dyn Fs>,
    config: &Config,
    claim: Claim,
    apply: bool,
) -> Result<(Ring, Option<RepairAction>)> {
    let layout = Layout::new(&config.ring);
    let fs = within(fs, layout.root(), config.modes);
    let damage = match fs.read(&layout.ring_json(), MAX_BYTES) {
        Ok(bytes) => {
            let error = serde_json::from_slice::<serde_json::Value>(&bytes).err();
            error.map(|error| Cause::BadDescriptor { why: error.to_string() })
        }
        Err(error) if error.is_gone() => Some(Cause::NoDescriptor),
        Err(_) => None, // reported when the ring is opened
    };
    let manifests = Manifests::new(fs.clone(), layout.clone());
    let Some(why) = damage.filter(|_| manifests.numbers().is_ok_and(|numbers| !numbers.is_empty())) else {
        return Ok((Ring::find_with(fs, config, claim)?, None));
    };
    let descriptor = told_by(&manifests, config, &layout)?;
    let me = owner_name();
    if apply {
        put(&*fs, &layout, &descriptor, &me)?;
    }
    let index = Backend::connect(&config.index, IfUnreachable::Continue)?;
    let ring = Ring::assemble(fs, config, descriptor, me, index, claim)?;
    let action = Remedy::RemakeDescriptor;
    Ok((ring, Some(RepairAction { what: "ring", path: layout.ring_json(), why, action, state: State::ToDo })))
}

fn told_by(manifests: &Manifests, config: &Config, layout: &Layout) -> Result<RingDescriptor> {
    let needs = |what: &str| Error::RingMismatch {
        path: layout.root().to_owned(),
        message: format!("ring.json is lost and cannot be recreated: {what}"),
    };
    let (mut ring_id, mut largest) = (None, 0);
    for n in manifests.numbers()? {
        let manifest = match manifests.get(n) {
            Ok(Some(manifest)) => manifest,
            Ok(None) | Err(Error::Manifest { .. }) => continue,
            Err(error) => return Err(error),
        };
        let is = &manifest.summary.ring;
        if ring_id.get_or_insert_with(|| is.clone()) != is {
            return Err(needs("its manifests belong to several rings: restore the correct ones from a copy"));
        }
        largest = largest.max(manifest.summary.samples);
    }
    let (Some(swap_cap), Some(sample)) = (config.swap_cap, config.sample.clone()) else {
        return Err(needs("SWAP_CAP and SAMPLE are required: use the configuration of the ring (-c config.yaml)"));
    };
    if swap_cap < largest {
        return Err(needs(&format!("SWAP_CAP {swap_cap} is too small: a generation has {largest} samples")));
    }
    if config.validation.is_none() {
        return Err(needs("VALIDATION is required: the number of held-out samples, 0 if there are none"));
    }
    Ok(RingDescriptor {
        ringreel: RING_VERSION,
        ring_id: ring_id.ok_or_else(|| needs("no manifest is readable"))?,
        swap_cap,
        sample,
        publish: "link".to_owned(),
        validation: config.validation.unwrap_or(0),
    })
}

fn put(fs: &dyn Fs, layout: &Layout, descriptor: &RingDescriptor, me: &str) -> Result<()> {
    let bytes = descriptor::encode(descriptor)?;
    fs.ensure_dir(&layout.staging())?;
    fs.ensure_dir(&layout.staging_of(me))?;
    let temp = layout.staging_of(me).join(format!("ring.json.{:08x}", random_u32()));
    if fs.exists(&layout.ring_json())? {
        // Linked into quarantine, then replaced by a rename, so that the name exists all the time.
        fs.ensure_dir(&layout.quarantine())?;
        let kept = layout.quarantine().join(format!("ring.json.{:08x}", random_u32()));
        if let Err(error) = fs.link(&layout.ring_json(), &kept)
            && same_file(fs, &layout.ring_json(), &kept)? != Some(true)
        {
            return Err(error.into());
        }
        write_new(fs, &temp, &bytes, true)?;
        if let Err(error) = fs.rename(&temp, &layout.ring_json()) {
            let _ = fs.forget_file(&temp); // at worst, litter stays
            if descriptor::read(fs, layout).ok().flatten().as_ref() != Some(descriptor) {
                return Err(error.into());
            }
        }
    } else {
        publish(fs, &temp, &layout.ring_json(), &bytes, true)?;
    }
    let _ = fs.remove_dir(&layout.staging_of(me)); // fails if it is not empty
    Ok(fs.sync_dir(layout.root())?)
}
