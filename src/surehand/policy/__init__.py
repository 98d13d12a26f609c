"""Floor 2, what may happen: rules, modes, the hard floor, approvals and trust. One judgement for every call."""
