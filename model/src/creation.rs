//! The creation of a ring by two concurrent processes with different configurations; see `src/ring/descriptor.rs`.

use crate::rules::Promise;
use stateright::Property;

/// Two creators of a ring, each with a separate configuration.
#[derive(Clone, Copy, Debug)]
pub struct Creation {
    /// Whether `ring.json` is linked to its place, so that the first one wins. Otherwise it is renamed.
    pub linked: bool,
}

/// The state of a creator: its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Maker {
    /// Looks for `ring.json`.
    Look,
    /// Wrote its own file, and publishes it.
    Publish,
    /// Reads the published file.
    Read,
    /// Works in the ring that this configuration described.
    Works(u8),
    /// Refused, because the ring differs from its configuration.
    Refused,
}

/// The published file, and the creators' states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    ring: Option<u8>,
    makers: [Maker; 2],
}

impl stateright::Model for Creation {
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
        let agree = |_: &Creation, place: &Place| {
            !place.makers.iter().any(|maker| matches!(maker, Maker::Works(ring) if Some(*ring) != place.ring))
        };
        vec![Property::always(Promise::OneRing.name(), agree)]
    }
}
