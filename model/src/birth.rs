//! The birth of a ring: two who start at once with configurations that differ. `src/ring/descriptor.rs` of the product.

use crate::rules::Promise;
use stateright::Property;

/// Two makers of a ring; each has a configuration of its own.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// `ring.json` is linked to its place: the first one wins. Else it is renamed there.
    pub linked: bool,
}

/// Where a maker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Maker {
    /// Looks for `ring.json`.
    Look,
    /// Wrote its own, and publishes it.
    Publish,
    /// Reads what is there.
    Read,
    /// Works in the ring that this one described.
    Works(u8),
    /// Refused: the ring is another one than it was told.
    Refused,
}

/// What is there, and where the makers stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    ring: Option<u8>,
    makers: [Maker; 2],
}

impl stateright::Model for Birth {
    type State = Place;
    type Action = String;

    fn init_states(&self) -> Vec<Place> {
        vec![Place { ring: None, makers: [Maker::Look; 2] }]
    }

    fn actions(&self, place: &Place, actions: &mut Vec<String>) {
        for (i, maker) in place.makers.iter().enumerate() {
            match maker {
                Maker::Works(_) | Maker::Refused => {}
                at => actions.push(format!("maker {i}: {at:?}")),
            }
        }
    }

    fn next_state(&self, place: &Place, action: String) -> Option<Place> {
        let mut to = *place;
        let i = usize::from(action.starts_with("maker 1"));
        to.makers[i] = match place.makers[i] {
            Maker::Look => place.ring.map_or(Maker::Publish, |_| Maker::Read),
            Maker::Publish => {
                if place.ring.is_none() || !self.linked {
                    to.ring = Some(i as u8);
                }
                Maker::Read
            }
            Maker::Read if place.ring == Some(i as u8) => Maker::Works(i as u8),
            _ => Maker::Refused,
        };
        Some(to)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let agree = |_: &Birth, place: &Place| {
            !place.makers.iter().any(|maker| matches!(maker, Maker::Works(ring) if Some(*ring) != place.ring))
        };
        vec![Property::always(Promise::OneRing.name(), agree)]
    }
}
