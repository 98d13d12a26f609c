"""Policy (floor 2), what may happen: rules, modes, the hard floor, approvals, trust. One judgement for every call."""
