//! Finished segments of dead owners, unfinished promotions, and litter that [`gc`](crate::gc::gc) removes.

use super::facts::{Blocker, Cause, Remedy};
use super::misplaced::delivery_with;
use super::{Liveness, Plan, RepairAction, State};
use crate::phase::Phase;
use ringreel::error::{Error, Result};
use ringreel::layout::{GenerationDir, is_owner, sealed_id};
use ringreel::manifest::SegmentEntry;
use ringreel::ring::Ring;
use ringreel::segment::reader::{check_stored, read_tail};
use ringreel::swap::orphans::Delivery;
use ringreel::swap::promote::{PromoteWhen, Promoted};
use ringreel_format::SegmentId;
use std::collections::HashSet;
use std::path::PathBuf;

/// A damaged staged segment of a dead owner.
#[derive(Debug)]
pub(super) struct Damaged {
    pub(super) owner: String,
    pub(super) id: SegmentId,
    pub(super) why: String,
}

/// Plans to finish an unfinished promotion, or to promote a full generation that no process promotes.
pub(super) fn plan_promotion(ring: &Ring, life: &Liveness, plan: &mut Plan) -> Result<()> {
    let n = plan.newest + 1;
    let read = ring.layout.read(n);
    if ring.fs.exists(&read)? {
        if ring.fs.exists(&ring.layout.manifest(n))? {
            return Ok(()); // finished meanwhile
        }
        plan.depends_on_life = true;
        let blocked = after_manifests(plan);
        plan.add("promotion", &read, Cause::Promoting { generation: n }, Remedy::FinishPromotion, blocked);
        return Ok(());
    }
    let fill = match ring.count_samples(n) {
        Ok(fill) => fill,
        Err(Error::Manifest { .. }) => return Ok(()),
        Err(Error::Fs { source }) if source.is_gone() => return Ok(()), // a lost manifest, or no such directory
        Err(error) => return Err(error),
    };
    if fill >= ring.descriptor.swap_cap {
        plan.depends_on_life = true;
        if !matches!(life, Liveness::Living(living) if !living.is_empty()) {
            let why = Cause::Full { generation: n, samples: fill };
            let held = ring.held_back()?.map(|held| Blocker::HeldBack { by: held.to_string() });
            plan.add("promotion", &ring.layout.write(n), why, Remedy::Promote, held);
        }
    }
    Ok(())
}

/// Plans to link the finished segments of dead owners.
pub(super) fn plan_staged(ring: &Ring, life: &Liveness, plan: &mut Plan) -> Result<()> {
    let linked = ring.in_filling(plan.newest + 1)?;
    let unclear: HashSet<SegmentId> =
        plan.rebuilds.iter().flat_map(|rebuild| &rebuild.unclear).map(|entry| entry.id).collect();
    let mut owners = ring.fs.list(&ring.layout.staging())?;
    owners.retain(|owner| {
        *owner != ring.me && is_owner(owner) && (*life == Liveness::Unheard || life.may_be_dead(owner))
    });
    owners.sort_unstable();
    for owner in owners {
        let (mut segments, mut samples) = (0u64, 0u64);
        for name in ring.list_or_none(&ring.layout.staging_of(&owner))? {
            let Some(id) = sealed_id(&name) else { continue };
            if unclear.contains(&id) {
                continue;
            }
            let path = ring.layout.sealed(&owner, id);
            let tail = match read_tail(&*ring.fs, &path) {
                Ok(tail) => tail,
                Err(Error::Format { source, .. }) => {
                    plan_quarantine(ring, life, plan, &owner, id, source.to_string());
                    continue;
                }
                Err(Error::Fs { source }) if source.is_gone() && !source.is_stale() => continue,
                Err(error) => return Err(error),
            };
            let entry = SegmentEntry::of(&tail, 0);
            if linked.contains(&id) || matches!(delivery_with(ring, &entry, plan)?, Delivery::Delivered) {
                continue;
            }
            plan.depends_on_life = true;
            // Before heartbeats are watched, the owner may be alive and still be writing it.
            if *life != Liveness::Unknown
                && let Err(Error::Format { source, .. }) = check_stored(&*ring.fs, &path)
            {
                plan_quarantine(ring, life, plan, &owner, id, source.to_string());
                continue;
            }
            segments += 1;
            samples += entry.samples;
        }
        if segments > 0 {
            let why = Cause::Finished { segments, samples };
            let blocked = after_manifests(plan);
            let blocked = if *life == Liveness::Unheard { life.is_in_the_way() } else { blocked };
            plan.add("staged", &ring.layout.staging_of(&owner), why, Remedy::Link, blocked);
        }
    }
    Ok(())
}

fn plan_quarantine(ring: &Ring, life: &Liveness, plan: &mut Plan, owner: &str, id: SegmentId, why: String) {
    plan.depends_on_life = true;
    let blocked = if *life == Liveness::Unheard { life.is_in_the_way() } else { None };
    let path = ring.layout.sealed(owner, id);
    plan.add("staged", &path, Cause::DamagedSegment { why: why.clone() }, Remedy::Quarantine, blocked.clone());
    if blocked.is_none() {
        plan.damaged.push(Damaged { owner: owner.to_owned(), id, why });
    }
}

/// Finishes promotions and commits the finished segments of dead owners, until nothing changes any more.
pub(super) fn bring_in(ring: &Ring, life: &Liveness) -> Result<()> {
    if !matches!(life, Liveness::Living(_)) {
        return Ok(());
    }
    ring.leave_reclaiming();
    loop {
        let promoted = ring.promote(PromoteWhen::Full);
        match promoted.and_then(|promoted| Ok((promoted, ring.recover(&mut ring.failure_detector())?))) {
            Ok((Promoted::Done(_), _)) => {}
            // A delivered segment of another user keeps its staging name, and would be found again without end.
            Ok((_, recovered)) if recovered.adopted > 0 => {}
            Ok(_) => return Ok(()),
            // A lost manifest could not be rebuilt; the next plan lists what is left.
            Err(error @ Error::Manifest { .. }) => return left(&error),
            Err(Error::Fs { source }) if source.is_gone() => return left(&source.into()),
            Err(error) => return Err(error),
        }
    }
}

fn left(error: &Error) -> Result<()> {
    tracing::warn!("not all finished segments could be linked: {error}");
    Ok(())
}

/// Lists litter, which a manager removes.
pub(super) fn plan_litter(ring: &Ring, plan: &mut Plan) -> Result<()> {
    let mut litter = |path: PathBuf, why: Cause| {
        plan.actions.push(RepairAction { what: "litter", path, why, action: Remedy::Reclaim, state: State::Litter });
    };
    let next = plan.newest + 1;
    let mut names = ring.fs.list(ring.layout.root())?;
    names.sort_unstable();
    for name in names {
        if let Some(dir) = GenerationDir::parse(&name)
            && Phase::of(dir, next) == Phase::Retired
        {
            litter(ring.layout.generation(dir), Cause::PromotedAlready);
        }
    }
    for name in ring.list_or_none(&ring.layout.trash())? {
        litter(ring.layout.trash().join(name), Cause::Trash);
    }
    Ok(())
}

fn after_manifests(plan: &Plan) -> Option<Blocker> {
    plan.lacks_manifests().then_some(Blocker::ManifestsFirst)
}
