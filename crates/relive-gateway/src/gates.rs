//! Whether a call may go to the provider now; pure.

use jiff::Timestamp;

use crate::protocol::{Exhausted, Lease};

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    Refuse(String),
    /// The process is paused, or has nothing left.
    Held,
    /// The provider takes calls again at this time.
    Limited(Timestamp),
    /// The daemon has to permit it.
    Asks,
}

/// A provider that takes no calls for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) until: Timestamp,
    /// The number of the call that was told so.
    pub(crate) told: u64,
}

/// Decides about a call. `unsettled` are the tokens that the lease does not know of.
pub(crate) fn gate(lease: &Lease, number: u64, unsettled: u64, limited: Option<Limit>, now: Timestamp) -> Gate {
    if let Some(reason) = &lease.refuse {
        return Gate::Refuse(reason.clone());
    }
    if lease.hold {
        return Gate::Held;
    }
    if lease.tokens_left.is_some_and(|left| unsettled >= left) {
        return match lease.exhausted {
            Exhausted::Refuse => Gate::Refuse("the token budget of this process is used up".to_owned()),
            Exhausted::Hold => Gate::Held,
        };
    }
    let is_tried_again = |limit: &Limit| lease.tried_again.is_some_and(|told| limit.told <= told);
    if let Some(limit) = limited.filter(|limit| limit.until > now && !is_tried_again(limit)) {
        return Gate::Limited(limit.until);
    }
    match lease.permitted {
        Some(permitted) if number > permitted => Gate::Asks,
        Some(_) | None => Gate::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_spent_and_then_calls_are_refused_or_wait() {
        let now = Timestamp::from_second(1000).unwrap();
        let later = Timestamp::from_second(2000).unwrap();
        let lease = Lease { tokens_left: Some(100), ..Lease::default() };
        assert_eq!(gate(&lease, 1, 99, None, now), Gate::Open);
        assert!(matches!(gate(&lease, 1, 100, None, now), Gate::Refuse(_)));
        let patient = Lease { exhausted: Exhausted::Hold, ..lease.clone() };
        assert_eq!(gate(&patient, 1, 100, None, now), Gate::Held);
        assert_eq!(gate(&Lease { hold: true, ..lease.clone() }, 1, 0, None, now), Gate::Held);
        let limit = |until, told| Some(Limit { until, told });
        assert_eq!(gate(&lease, 1, 0, limit(later, 4), now), Gate::Limited(later));
        assert_eq!(gate(&lease, 1, 0, limit(now, 4), later), Gate::Open);
        // A person wants to know whether it is still so; the next answer counts again.
        let again = Lease { tried_again: Some(4), ..lease.clone() };
        assert_eq!(gate(&again, 5, 0, limit(later, 4), now), Gate::Open);
        assert_eq!(gate(&again, 6, 0, limit(later, 5), now), Gate::Limited(later));
        let asking = Lease { permitted: Some(4), ..lease };
        assert_eq!((gate(&asking, 4, 0, None, now), gate(&asking, 5, 0, None, now)), (Gate::Open, Gate::Asks));
        let refused = Lease { refuse: Some("no".into()), ..asking };
        assert_eq!(gate(&refused, 4, 0, None, now), Gate::Refuse("no".into()));
    }
}
