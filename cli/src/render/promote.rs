//! Output of `ringreel promote`.

use ringreel::manifest::Summary;
use ringreel_ops::promote_partial::PartialPromotion;

/// Describes a promotion.
pub fn promoted(summary: &Summary) -> String {
    format!("generation {} is readable: {} samples", summary.generation, summary.samples)
}

/// Returns the reason why the filling generation was not promoted, or `None` if it was.
pub fn why_not(done: &PartialPromotion) -> Option<String> {
    match (&done.held, done.promotions.is_empty()) {
        (Some(held), _) => Some(format!("not promoted: the filling generation waits for {held}")),
        (None, true) if done.by_another => Some("another process has just promoted it".to_owned()),
        (None, true) => Some("nothing to promote: the filling generation has no samples".to_owned()),
        (None, false) => None,
    }
}
